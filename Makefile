# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo test browser lint bench peers docs lock clean

demo: $(VENV)/.installed
	rm -rf runs/demo
	$(BIN)/fedpace compare fedavg gma paced fedpace --data digit_domains --partition dirichlet --alpha 0.1 --clients 10 \
	  --seeds 0,1,2,3,4,5 --rounds 15 --set local.max_steps=10 --set measuring.per_client=50 --out runs/demo

test: lint browser
	$(BIN)/pytest -n auto

# A test opens the report in chromium. Where there is none and it cannot be installed, that test is skipped.
browser: APT = $(if $(filter-out 0,$(shell id -u)),sudo -n) env DEBIAN_FRONTEND=noninteractive apt-get
browser:
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome || \
	  { $(APT) update; $(APT) install -y --no-install-recommends chromium; }; } >/dev/null 2>&1 </dev/null || \
	  echo "chromium could not be installed: the test that opens the report in a browser will be skipped"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/aggregation.py
	$(BIN)/python benchmarks/population.py
	$(BIN)/python benchmarks/personal.py
	$(BIN)/python benchmarks/flower.py
	$(BIN)/python benchmarks/startup.py

# Beside other frameworks, which it installs into an environment of their own. See docs/performance.md.
peers: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.peers

docs: $(VENV)/.installed-dev
	$(BIN)/pip install -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict

# Every version with the hashes of its files, for those who install nothing else: see SECURITY.md. Without torch and what
# its builds for GPUs bring along, because which of these is right depends on the machine.
GPU := triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-, cublas cuda-cupti cuda-nvrtc cuda-runtime \
  cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)
lock: $(VENV)/.installed-dev
	$(BIN)/uv pip compile pyproject.toml -c constraints.txt --universal --python-version 3.11 --generate-hashes --quiet \
	  $(foreach extra,dp flower hub llm text track,--extra $(extra)) $(foreach one,torch $(GPU),--no-emit-package $(one)) \
	  --no-emit-index-url --no-annotate --custom-compile-command 'make lock' --output-file requirements.lock

# torch goes first and exactly pinned: a wider range would fetch gigabytes of GPU libraries.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install "$$(grep '^torch==' constraints.txt)"
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install -c constraints.txt -e '.[dev,track,flower]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
