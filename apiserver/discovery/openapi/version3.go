package openapi

import (
	"encoding/json"
	"strconv"

	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry/definitions"
)

// version3 renders the OpenAPI v3 document of a group and version.
type version3 struct{ gv schema.GroupVersion }

func (v *version3) path(p path) object {
	out := object{}
	for _, op := range p.operations {
		out[op.method] = v.operation(op)
	}
	if len(p.parameters) > 0 {
		out["parameters"] = parameters3(p.parameters)
	}
	return out
}

func (v *version3) operation(op operation) object {
	out := op.common()
	if len(op.query) > 0 {
		out["parameters"] = parameters3(op.query)
	}
	if op.body != "" {
		body := object{"content": content3(op.consumes, op.body)}
		if op.bodyRequired {
			body["required"] = true
		}
		out["requestBody"] = body
	}
	responses := object{"401": object{"description": "Unauthorized"}}
	for _, a := range op.answers {
		responses[strconv.Itoa(a.code)] = object{"description": textOf(a.code),
			"content": content3(op.produces, a.definition)}
	}
	out["responses"] = responses
	return out
}

func content3(types []string, definition string) object {
	shape := object{"type": "string"}
	if definition != "" {
		shape = object{"$ref": "#/components/schemas/" + definition}
	}
	content := object{}
	for _, typ := range types {
		content[typ] = object{"schema": shape}
	}
	return content
}

func parameters3(list []parameter) []object {
	var out []object
	for _, p := range list {
		o := object{"name": p.name, "in": p.in, "description": p.about, "schema": object{"type": p.typ, "uniqueItems": true}}
		if p.in == "path" {
			o["required"] = true
		}
		out = append(out, o)
	}
	return out
}

// definition returns the schema of a definition. For options that all groups share it lists only the kinds of this
// group and of the core group.
func (v *version3) definition(d *definitions.Definition) ([]byte, error) {
	if len(d.Kinds) < 2 || d.Kinds[0].Group != "" || d.Kinds[0].Version != "v1" {
		return d.V3, nil
	}
	var shape object
	if err := json.Unmarshal(d.V3, &shape); err != nil {
		return nil, err
	}
	var kinds []object
	for _, k := range d.Kinds {
		if k.Group == "" || k.Group == v.gv.Group && k.Version == v.gv.Version {
			kinds = append(kinds, object{"group": k.Group, "version": k.Version, "kind": k.Kind})
		}
	}
	shape[kindExtension] = kinds
	return json.Marshal(shape)
}

func (v *version3) shared() ([]piece, error) { return nil, nil }

func (v *version3) document(p pieces) ([]byte, error) {
	components := object{"schemas": join(p.definitions)}
	if !p.part {
		components["securitySchemes"] = object{"BearerToken": bearer()}
	}
	return json.Marshal(object{
		"openapi":    "3.0.0",
		"info":       object{"title": "Kubernetes", "version": p.version},
		"paths":      join(p.paths),
		"components": components,
	})
}

func (v *version3) binary(document []byte) ([]byte, error) {
	parsed, err := openapi_v3.ParseDocument(document)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(parsed)
}
