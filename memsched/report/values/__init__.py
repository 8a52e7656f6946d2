"""The reports of all commands as frozen values: what their JSON files hold, and what the JSON Schemas are made from."""
