package openapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"

	"monopod/apiserver/registry/definitions"
)

// kindExtension is the extension with the kind of a schema or an operation.
const kindExtension = "x-kubernetes-group-version-kind"

// version2 renders the one OpenAPI v2 document. Its paths share parameters, which it collects.
type version2 struct{ parameters map[string]object }

// common returns the fields of an operation that both versions of OpenAPI have.
func (op operation) common() object {
	out := object{"operationId": op.id, "description": op.about, "tags": []string{op.tag}}
	if op.action != "" {
		out["x-kubernetes-action"] = op.action
	}
	if !op.kind.Empty() {
		out[kindExtension] = object{"group": op.kind.Group, "version": op.kind.Version, "kind": op.kind.Kind}
	}
	return out
}

func textOf(code int) string { return http.StatusText(code) }

// bearer is the security definition of bearer tokens.
func bearer() object {
	return object{"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication"}
}

func (v *version2) path(p path) object {
	out := object{}
	for _, op := range p.operations {
		out[op.method] = v.operation(op)
	}
	if len(p.parameters) > 0 {
		out["parameters"] = v.refs(p.parameters)
	}
	return out
}

func (v *version2) operation(op operation) object {
	out := op.common()
	out["schemes"], out["produces"], out["consumes"] = []string{"https"}, op.produces, op.consumes
	if op.consumes == nil {
		out["consumes"] = []string{anyType}
	}
	params := v.refs(op.query)
	if op.body != "" {
		params = append(params, body2(op))
	}
	if len(params) > 0 {
		out["parameters"] = params
	}
	responses := object{"401": object{"description": "Unauthorized"}}
	for _, a := range op.answers {
		responses[strconv.Itoa(a.code)] = object{"description": textOf(a.code), "schema": shape2(a.definition)}
	}
	out["responses"] = responses
	return out
}

func shape2(definition string) object {
	if definition == "" {
		return object{"type": "string"}
	}
	return object{"$ref": "#/definitions/" + definition}
}

func body2(op operation) object {
	body := object{"name": "body", "in": "body", "schema": shape2(op.body)}
	if op.bodyRequired {
		body["required"] = true
	}
	return body
}

// refs adds parameters to the shared parameters, and returns references to them.
func (v *version2) refs(list []parameter) []object {
	var out []object
	for _, p := range list {
		o := object{"name": p.name, "in": p.in, "description": p.about, "type": p.typ, "uniqueItems": true}
		if p.in == "path" {
			o["required"] = true
		}
		name := p.name + "-" + digest(p)
		v.parameters[name] = o
		out = append(out, object{"$ref": "#/parameters/" + name})
	}
	return out
}

// digest distinguishes parameters of the same name.
func digest(p parameter) string {
	sum := sha256.Sum256([]byte(p.in + "\x00" + p.typ + "\x00" + p.about))
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}

func (v *version2) definition(d *definitions.Definition) ([]byte, error) { return d.V2, nil }

func (v *version2) shared() ([]piece, error) {
	var out []piece
	for _, name := range slices.Sorted(maps.Keys(v.parameters)) {
		text, err := json.Marshal(v.parameters[name])
		if err != nil {
			return nil, err
		}
		out = append(out, piece{name: name, json: text})
	}
	return out, nil
}

func (v *version2) document(p pieces) ([]byte, error) {
	doc := object{
		"swagger":     "2.0",
		"info":        object{"title": "Kubernetes", "version": p.version},
		"paths":       join(p.paths),
		"definitions": join(p.definitions),
		"parameters":  join(p.parameters),
	}
	if !p.part {
		doc["securityDefinitions"] = object{"BearerToken": bearer()}
		doc["security"] = []object{{"BearerToken": []string{}}}
	}
	return json.Marshal(doc)
}

func (v *version2) binary(document []byte) ([]byte, error) {
	parsed, err := openapi_v2.ParseDocument(document)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(parsed)
}
