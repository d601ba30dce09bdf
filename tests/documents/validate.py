# validate.py [--exact] SCHEMA FILE...: prints for each TOML or JSON file `NAME ok` or the error. With --exact, keys that the
# schema does not name are errors too.
import json, sys, tomllib
import jsonschema

words = sys.argv[1:]
exact = words[0] == "--exact"
schema_file, *files = words[exact:]
with open(schema_file) as file:
    schema = json.load(file)


def close(node):
    if isinstance(node, dict):
        if node.get("type") == "object" and "properties" in node:
            node.setdefault("additionalProperties", False)
        for inner in node.values():
            close(inner)
    elif isinstance(node, list):
        for inner in node:
            close(inner)


jsonschema.Draft202012Validator.check_schema(schema)
if exact:
    close(schema)
validator = jsonschema.Draft202012Validator(schema)
for name in files:
    with open(name, "rb") as file:
        document = tomllib.load(file) if name.endswith(".toml") else json.load(file)
    errors = sorted(validator.iter_errors(document), key=str)
    short = name.rsplit("/", 1)[-1]
    print(short, "ok" if not errors else "; ".join(f"{e.json_path}: {e.message}" for e in errors))
