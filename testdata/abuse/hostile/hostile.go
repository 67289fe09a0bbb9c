// Package hostile contains requests that are the most expensive for their size: each has cost an API server a gigabyte
// of memory or minutes of CPU.
package hostile

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Request is a hostile request with a body of at most 3 MiB.
type Request struct{ Name, Method, Path, ContentType, Body string }

const (
	json      = "application/json"
	yaml      = "application/yaml"
	protobuf  = "application/vnd.kubernetes.protobuf"
	merge     = "application/merge-patch+json"
	strategic = "application/strategic-merge-patch+json"
	jsonPatch = "application/json-patch+json"
	apply     = "application/apply-patch+yaml"

	review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// Requests returns one request of every kind, for a ConfigMap, pods and things in a namespace, and for definitions,
// policies and webhooks.
func Requests(namespace string) []Request {
	ns := "/api/v1/namespaces/" + namespace
	confs, conf, pods := ns+"/configmaps", ns+"/configmaps/target", ns+"/pods"
	bomb := "a: &a \"" + strings.Repeat("x", 20_000) + "\"\nb: [" + list("*a", 60_000) + "]\n"
	deep := nested(`{"a":`, "}", 9000)
	named := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"target"}`
	return slices.Concat(things(namespace), configurations(), []Request{
		{"aliases", "POST", review, yaml, bomb},
		{"aliases as JSON", "POST", review, json, bomb},
		{"aliases applied", "PATCH", conf + "?fieldManager=m", apply, bomb},
		{"laughs", "POST", confs, yaml, laughs()},
		{"flow of YAML", "POST", confs, yaml, "a: [" + list("{a: b}", 400_000) + "]"},
		{"blocks of YAML", "POST", confs, yaml, strings.Repeat("- a: b\n", 400_000)},
		{"text in YAML", "POST", confs, yaml, "metadata: {generateName: y-}\ndata:\n  k: |\n" +
			strings.Repeat("    <<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<\n", 25_000)},
		{"nested YAML", "POST", confs, yaml, nested("[", "]", 9000)},
		{"nested", "POST", confs, json, deep},
		{"nested merge patch", "PATCH", conf, merge, "{" + chains(deep, 30) + "}"},
		{"nested strategic patch", "PATCH", conf, strategic, "{" + chains(deep, 30) + "}"},
		{"nested JSON patch", "PATCH", conf, jsonPatch, `[{"op":"add","path":"/data","value":` + deep + `}]`},
		{"nested apply", "PATCH", conf + "?fieldManager=m", apply, named + `,"data":` + deep + `}`},
		{"managers", "POST", confs, json, `{"metadata":{"generateName":"m-","managedFields":[` + list("{}", 1_000_000) +
			`]}}`},
		{"managers, fewer", "POST", confs, json, `{"metadata":{"generateName":"m-","managedFields":[` + list("{}", 9_000) +
			`]}}`},
		{"fields", "POST", confs, json,
			`{"metadata":{"generateName":"m-","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1",` +
				`"fieldsType":"FieldsV1","fieldsV1":{` + members("f:", `{}`, 150_000) + `}}]}}`},
		{"containers", "POST", pods, json, `{"metadata":{"generateName":"p-"},"spec":{"containers":[` + list("{}", 9_900) +
			`]}}`},
		{"null containers", "POST", pods, json, `{"metadata":{"generateName":"p-"},"spec":{"containers":[` +
			list("null", 9_900) + `],"initContainers":[` + list("null", 9_900) + `]}}`},
		{"containers of protobuf", "POST", pods, protobuf, envelope(field(strings.Repeat(field(""), 1_500_000)))},
		{"fewer of protobuf", "POST", pods, protobuf, envelope(field(strings.Repeat(field(""), 9_900)))},
		{"labels", "POST", confs, json, `{"metadata":{"generateName":"l-","labels":{` + members("l", `"v"`, 180_000) + `}}}`},
		{"unknown fields", "POST", confs, json, `{"metadata":{"generateName":"u-"},` + members("u", `1`, 180_000) + `}`},
		{"objects", "PATCH", conf, merge, `{"x":[` + list(`[`+list(`{"a":1}`, 9_000)+`]`, 40) + `]}`},
		{"objects, strategic", "PATCH", conf, strategic, `{"x":[` + list(`[`+list(`{"a":1}`, 9_000)+`]`, 40) + `]}`},
		{"operations", "PATCH", conf, jsonPatch, `[` +
			list(`{"op":"add","path":"/metadata/finalizers/0","value":"a/b"}`, 9_990) + `]`},
		{"copies", "PATCH", conf, jsonPatch, `[` + list(`{"op":"copy","from":"/data","path":"/data/k"}`, 9_990) + `]`},
		{"long path", "PATCH", conf, jsonPatch, `[{"op":"add","path":"` + strings.Repeat("/a", 700_000) + `","value":1}]`},
		// A dry run: otherwise the garbage collector would delete the ConfigMap, because the owners do not exist.
		{"merged lists", "PATCH", conf + "?dryRun=All", strategic, `{"metadata":{"ownerReferences":[` + uids(9_900) + `]}}`},
		{"large text", "POST", confs, json, `{"metadata":{"generateName":"t-"},"data":{"k":"` +
			strings.Repeat("x", 3_000_000) + `"}}`},
		{"large text applied", "PATCH", conf + "?fieldManager=m&force=true", apply, named + `,"data":{"k":"` +
			strings.Repeat("x", 1_000_000) + `"}}`},
		{"objects applied", "PATCH", conf + "?fieldManager=m&force=true", apply, named + `,"data":{` +
			members("k", `"v"`, 100_000) + `}}`},
		{"options", "DELETE", conf, json, `{"dryRun":[` + list(`"All"`, 500_000) + `]}`},
		{"quantities", "POST", pods, json, `{"metadata":{"generateName":"q-"},"spec":{"overhead":{` +
			members("r", `"1e99999999"`, 100_000) + `}}}`},
		{"zeroes", "POST", confs, json, strings.Repeat("\x00", 3<<20)},
		{"spaces", "POST", confs, json, strings.Repeat(" ", 3<<20)},
		{"brackets", "POST", confs, json, strings.Repeat("[", 3<<20)},
		{"quotes", "POST", confs, json, `"` + strings.Repeat(`\"`, 3<<19-2) + `"`},
	})
}

func list(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

func nested(open, end string, depth int) string {
	return strings.Repeat(open, depth) + "1" + strings.Repeat(end, depth)
}

func members(prefix, value string, n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `"%s%x":%s,`, prefix, i, value)
	}
	return strings.TrimSuffix(out.String(), ",")
}

func chains(value string, n int) string { return members("a", value, n) }

func uids(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `{"apiVersion":"v1","kind":"Pod","name":"p","uid":"%x"},`, i)
	}
	return strings.TrimSuffix(out.String(), ",")
}

func laughs() string {
	var out strings.Builder
	out.WriteString("a: &a [x, x, x, x, x, x, x, x, x, x]\n")
	for c := 'b'; c < 'k'; c++ {
		fmt.Fprintf(&out, "%c: &%c [%s]\n", c, c, list(fmt.Sprintf("*%c", c-1), 10))
	}
	return out.String()
}

// field encodes field 2 of a protobuf message: the object of an envelope, the spec of a pod, or its containers.
func field(inner string) string {
	return string(binary.AppendUvarint([]byte{2<<3 | 2}, uint64(len(inner)))) + inner
}

func envelope(object string) string { return "k8s\x00" + field(object) }
