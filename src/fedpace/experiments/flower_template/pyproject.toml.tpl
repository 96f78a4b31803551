[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$project"
version = "1.0.0"
description = "fedpace's preset $preset on Flower"
license = "MIT"
dependencies = ["fedpace[flower]"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedpace"

[tool.flwr.app.components]
serverapp = "$package.server_app:app"
clientapp = "$package.client_app:app"

[tool.flwr.app.config]
preset = "$preset"
settings = $settings
out = $out
timeout = $timeout
