"""The clients, as in Flower's own examples."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import accuracy, build_model, load_client, train

app = ClientApp()


@app.train()
def on_train(message: Message, context: Context) -> Message:
    """Train the global model on this client's examples."""
    model = build_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    data, _ = load_client(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = train(model, data, context.run_config["local-epochs"], context.run_config["learning-rate"])
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(data)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def on_evaluate(message: Message, context: Context) -> Message:
    """Test the global model on this client's examples."""
    model = build_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    _, data = load_client(context.node_config["partition-id"], context.node_config["num-partitions"])
    metrics = MetricRecord({"accuracy": accuracy(model, data), "num-examples": len(data)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
