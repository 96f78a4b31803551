"""Partitions: how a pool of examples is dealt to clients. One per file, found by name in ``partitions``."""

from fedpace.data.partitions._partition import Assignment, ClientsPartition, Partition, partitions
from fedpace.data.partitions.by import By
from fedpace.data.partitions.classes_per_client import ClassesPerClient
from fedpace.data.partitions.dirichlet import Dirichlet
from fedpace.data.partitions.dirichlet_hsu import DirichletHsu
from fedpace.data.partitions.iid import Iid
from fedpace.data.partitions.leave_one_domain_out import LeaveOneDomainOut
from fedpace.data.partitions.pathological import Pathological
from fedpace.data.partitions.practical import Practical
from fedpace.data.partitions.quantity import Quantity
from fedpace.data.partitions.sorted_shards import SortedShards
from fedpace.data.partitions.writers import Writers

__all__ = [
    "Assignment",
    "By",
    "ClassesPerClient",
    "ClientsPartition",
    "Dirichlet",
    "DirichletHsu",
    "Iid",
    "LeaveOneDomainOut",
    "Partition",
    "Pathological",
    "Practical",
    "Quantity",
    "SortedShards",
    "Writers",
    "partitions",
]
