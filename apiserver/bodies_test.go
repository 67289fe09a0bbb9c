package apiserver_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

const (
	asYAML      = "Content-Type: application/yaml"
	asMerge     = "Content-Type: application/merge-patch+json"
	asApply     = "Content-Type: application/apply-patch+yaml"
	asStrategic = "Content-Type: application/strategic-merge-patch+json"
	asProtobuf  = "Content-Type: application/vnd.kubernetes.protobuf"
	asForm      = "Content-Type: application/x-www-form-urlencoded"
	whoAmI      = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	tooDeep     = "must not be nested more than 256 levels deep"
	confB       = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}`
	yamlHeader  = "set the header Content-Type: application/yaml"
)

func many(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

func nested(open, end string, depth int) string {
	return strings.Repeat(open, depth) + "1" + strings.Repeat(end, depth)
}

// message returns a length-delimited field of a protobuf message.
func message(number byte, inner string) string {
	return string(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(inner)))) + inner
}

// Bodies that would need excessive memory or time are refused with the reason before they are decoded.
func TestHostileBodiesAreRefused(t *testing.T) {
	t.Parallel()
	bomb := "apiVersion: v1\na: &a \"" + strings.Repeat("x", 20_000) + "\"\nb: [" + many("*a", 60_000) + "]\n"
	deep := nested(`{"a":`, "}", 9000)
	for name, c := range map[string]struct {
		method, path, body, header string
		code                       int
		says                       string
	}{
		"aliases":                            {"POST", whoAmI, bomb, asYAML, 400, "aliases expand to more than"},
		"aliases with the content type JSON": {"POST", whoAmI, bomb, asJSON, 400, yamlHeader},
		"YAML that curl sends": {"POST", confs, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n", asForm, 400,
			yamlHeader},
		"YAML without a type": {"POST", confs, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n", "Content-Type: ",
			400, yamlHeader},
		"aliases applied": {"PATCH", confs + "/b?fieldManager=m", bomb, asApply, 400, "aliases expand to more than"},
		"deep applied": {"PATCH", confs + "/b?fieldManager=m", confB + `,"data":` + deep + `}`, asApply, 422,
			tooDeep},
		"deep YAML applied":    {"PATCH", confs + "/b?fieldManager=m", "a: " + nested("[", "]", 9000), asApply, 422, tooDeep},
		"deep merge patch":     {"PATCH", confs + "/a", `{` + many(`"a":`+deep, 7) + `}`, asMerge, 422, tooDeep},
		"deep strategic patch": {"PATCH", confs + "/a", deep, asStrategic, 422, tooDeep},
		"deep JSON patch": {"PATCH", confs + "/a", `[{"op":"add","path":"/data","value":` + deep + `}]`, asPatch, 422,
			tooDeep},
		"deep body": {"POST", confs, deep, asJSON, 422, tooDeep},
		"managers": {"POST", confs, `{"metadata":{"name":"b","managedFields":[` + many("{}", 1_000_000) +
			`]}}`, asJSON, 422, "metadata.managedFields: Too many: 1000000: must have at most 10000 items"},
		"containers": {"POST", pods, "k8s\x00" + message(2, message(2, strings.Repeat(message(2, ""), 20_000))),
			asProtobuf, 422, "spec.containers: Too many: 10001: must have at most 10000 items"},
		"objects": {"PATCH", confs + "/a", `{"x":[` + many(`[`+many(`{"a":1}`, 9000)+`]`, 40) + `]}`, asMerge,
			413, "limit is 64 MiB"},
		"YAML nodes": {"POST", confs, "a: [" + many("{a: b}", 400_000) + "]", asYAML, 413, "limit is 64 MiB"},
		"DeleteOptions": {"DELETE", confs, `{"dryRun":[` + many(`"All"`, 10_001) + `]}`, asJSON, 422,
			"dryRun: Too many"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := serve(t)
			a.read("POST", confs, `{"metadata":{"name":"a"}}`, asJSON)
			code, out := a.read(c.method, c.path, c.body, c.header)
			if message := fmt.Sprint(out["message"]); code != c.code || !strings.Contains(message, c.says) ||
				len(message) > 2000 {
				t.Errorf("%d %.300s; want %d, %s", code, message, c.code, c.says)
			}
		})
	}
}

// Common bodies are accepted.
func TestCommonBodiesAreAccepted(t *testing.T) {
	t.Parallel()
	a := serve(t)
	text := strings.Repeat("a line of a file, with {braces} and [brackets]: yes\\n", 19_000)
	for _, c := range [][4]string{
		{"POST", confs, `{"metadata":{"name":"a"}}`, asForm},
		{"POST", confs, `{"metadata":{"name":"c"}}`, "Content-Type: "},
		{"POST", confs, "metadata: {name: d, labels: &l {a: b}, annotations: *l}", asYAML},
		{"POST", confs, `{"metadata":{"name":"e"},"data":{"k":"` + text + `"}}`, asJSON},
		{"PATCH", confs + "/e", `{"metadata":{"labels":{"a":"b"}}}`, asMerge},
		{"PATCH", confs + "/e", `[{"op":"add","path":"/metadata/labels/a","value":"c"}]`, asPatch},
		{"PATCH", confs + "/e", `{"metadata":{"labels":{"a":"d"}}}`, asStrategic},
		{"PATCH", confs + "/e?fieldManager=m&force=true",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"e"},"data":{"k":"` + text + `"}}`, asApply},
		{"PATCH", confs + "/e?fieldManager=m&force=true",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: e}\ndata:\n  k: x\n", asApply},
	} {
		if code, out := a.read(c[0], c[1], c[2], c[3]); code > 201 {
			t.Errorf("%s %s %.80s: %d %.300v", c[0], c[1], c[2], code, out["message"])
		}
	}
}
