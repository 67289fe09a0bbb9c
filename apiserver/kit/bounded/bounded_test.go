package bounded_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/bounded"
)

func many(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

func nested(open, end string, depth int) string {
	return strings.Repeat(open, depth) + "1" + strings.Repeat(end, depth)
}

// Values that are nested too deep, and lists that are too long, are refused with their path. Common bodies are
// accepted.
func TestJSONIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a pod": {`{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","args":["{[{["]}]}}`,
			""},
		"deep": {`{"metadata":{"managedFields":[{"fieldsV1":` + nested(`{"f:a":`, "}", 250) + `}]}}`, ""},
		"too deep": {`{"metadata":{"managedFields":[{"fieldsV1":` + nested(`{"f:a":`, "}", 256) + `}]}}`,
			"metadata.managedFields[].fieldsV1.f:a.f:a.f:a.f:a…: Forbidden: must not be nested more than 256 levels deep"},
		"too deep, unknown": {`{"a":` + nested("[", "]", 300) + `}`, "a[][][][][][][]…: Forbidden"},
		"a long list":       {`{"spec":{"containers":[` + many("{}", 10_000) + `]}}`, ""},
		"too long a list": {`{"spec":{"containers":[` + many("null", 10_001) + `]}}`,
			"spec.containers: Too many: 10001: must have at most 10000 items"},
		"escaped":  {`{"sp\u0065c":{"containers":[` + many("{}", 10_001) + `]}}`, "spec.containers: Too many"},
		"not JSON": {`{"spec":{"containers":[` + many("{}", 10), ""},
		"empty":    {``, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w bounded.Weigher
			_, err := w.JSON([]byte(c.text), &corev1.Pod{})
			if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && !strings.HasPrefix(got, c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// message returns a length-delimited field of a protobuf message.
func message(number byte, inner string) string {
	return string(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(inner)))) + inner
}

func TestProtobufIsBounded(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"},
		ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(nested(`{"f:a":`, "}", 300))}}}}
	hidden, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	pod.ManagedFields = nil
	usual, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	revision, err := (&corev1.ObjectReference{Name: "a"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ data, want string }{
		"a pod":           {string(usual), ""},
		"another message": {string(revision), ""},
		"too long a list": {message(2, strings.Repeat(message(2, ""), 10_001)), "spec.containers: Too many"},
		"too deep JSON":   {string(hidden), "metadata.managedFields.fieldsV1.f:a"},
		"truncated":       {string(usual[:len(usual)-3]), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w bounded.Weigher
			_, err := w.Protobuf([]byte(c.data), &corev1.Pod{})
			if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && !strings.HasPrefix(got, c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// deep is a message that contains itself, like the schema of a custom kind.
type deep struct {
	Inner *deep `protobuf:"bytes,1,opt,name=inner" json:"inner"`
}

func TestRecursiveProtobufIsBounded(t *testing.T) {
	t.Parallel()
	data := ""
	for range 300 {
		data = message(1, data)
	}
	var w bounded.Weigher
	if _, err := w.Protobuf([]byte(data), &deep{}); err == nil || !strings.Contains(err.Error(), "256 levels") {
		t.Errorf("got %v", err)
	}
}

// Weights are within a factor of two of what decoding allocates.
func TestWeights(t *testing.T) {
	labels := make([]string, 5000)
	for i := range labels {
		labels[i] = fmt.Sprintf(`"label-%d":"value"`, i)
	}
	for name, c := range map[string]struct {
		text string
		into func() any
	}{
		"a text": {`{"data":{"k":"` + strings.Repeat("x", 1<<20) + `"}}`,
			func() any { return &corev1.ConfigMap{} }},
		"empty containers": {`{"spec":{"containers":[` + many("{}", 9000) + `]}}`, func() any { return &corev1.Pod{} }},
		"null containers":  {`{"spec":{"containers":[` + many("null", 9000) + `]}}`, func() any { return &corev1.Pod{} }},
		"managers": {`{"metadata":{"managedFields":[` + many("{}", 9000) + `]}}`,
			func() any { return &corev1.Pod{} }},
		"pointers": {`{"spec":{"containers":[` + many(`{"livenessProbe":{},"securityContext":{}}`, 2000) + `]}}`,
			func() any { return &corev1.Pod{} }},
		"labels": {`{"metadata":{"labels":{` + strings.Join(labels, ",") + `}}}`,
			func() any { return &corev1.Pod{} }},
		"untyped objects": {`{"a":[` + many(`{"a":1}`, 9000) + `]}`, func() any { return new(any) }},
		"untyped texts":   {`{"a":[` + many(`"a"`, 9000) + `]}`, func() any { return new(any) }},
	} {
		t.Run(name, func(t *testing.T) {
			var w bounded.Weigher
			weight, err := w.JSON([]byte(c.text), c.into())
			if err != nil {
				t.Fatal(err)
			}
			took := allocated(func() {
				if err := json.Unmarshal([]byte(c.text), c.into()); err != nil {
					t.Error(err)
				}
			})
			if weight < took/3 || weight > 3*took {
				t.Errorf("weighs %d bytes, takes %d", weight, took)
			}
		})
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	bomb := "a: &a \"" + strings.Repeat("x", 20_000) + "\"\nb: [" + many("*a", 60_000) + "]\n"
	lol := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := byte('b'); c < 'k'; c++ {
		lol += fmt.Sprintf("%c: &%c [%s]\n", c, c, many(fmt.Sprintf("*%c", c-1), 10))
	}
	for name, c := range map[string]struct{ text, want, err string }{
		"one document": {"# c\n---\na: 1\n---\n# no more\n", `{"a":1}`, ""},
		"an alias": {"a: &a {b: c}\nd: *a\ne: {<<: *a, f: g}\n", `{"a":{"b":"c"},"d":{"b":"c"},"e":{"b":"c","f":"g"}}`,
			""},
		"no alias":           {"a: x & y\nb: '*a'\n", `{"a":"x \u0026 y","b":"*a"}`, ""},
		"JSON":               {`{"a":[1,"x"]}`, `{"a":[1,"x"]}`, ""},
		"two":                {"a: 1\n---\nb: 2\n", "", "several documents"},
		"none":               {"# c\n", "", "empty"},
		"an alias of itself": {"a: &a [*a]\n", "", "alias"},
		"many aliases":       {bomb, "", "aliases expand to more than"},
		"laughs":             {lol, "", "aliases expand to more than"},
		"not YAML":           {"a: [", "", "yaml: "},
		"deep":               {nested("[", "]", 20_000), "", "exceeded max depth"},
		"deep, indents":      {strings.Repeat("- ", 20_000), "", "exceeded max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := bounded.YAMLToJSON([]byte(c.text))
			if c.err == "" && (err != nil || string(got) != c.want) || c.err != "" &&
				(err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %.200s, %v", got, err)
			}
		})
	}
}

// A document takes no more memory than its weight, apart from short-lived garbage.
func TestYAMLWeights(t *testing.T) {
	for name, text := range map[string]string{
		"texts":     "[" + many("a", 5000) + "]",
		"objects":   "[" + many("{a: b}", 5000) + "]",
		"keys":      "{" + many("a", 5000) + "}",
		"blocks":    strings.Repeat("- a: b\n", 5000),
		"a text":    "a: |\n" + strings.Repeat("  "+strings.Repeat("<", 100)+"\n", 5000),
		"an object": "a:\n  b: {c: d}\n  e:\n  - f\n",
	} {
		t.Run(name, func(t *testing.T) {
			took := allocated(func() {
				if _, err := bounded.YAMLToJSON([]byte(text)); err != nil {
					t.Error(err)
				}
			})
			const parser = 100 << 10 // the parser's buffers
			if weight := bounded.WeighYAML([]byte(text)); weight*5+parser < took {
				t.Errorf("weighs %d bytes, takes %d", weight, took)
			}
		})
	}
}

// JSON reads valid JSON to its end unless it refuses it, so the weight is complete.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":null}],"c":"\\\"","d":-1.5e3}`, ` [ ] `, `"x"`,
		`{"spec":{"containers":[{"name":"a"}]}}`} {
		f.Add(s)
	}
	var w bounded.Weigher
	f.Fuzz(func(t *testing.T, text string) {
		for _, into := range []any{&corev1.Pod{}, new(any), &[]corev1.Pod{}} {
			_, err := w.JSON([]byte(text), into)
			if err != nil || !json.Valid([]byte(text)) {
				continue
			}
			if _, err := w.JSON([]byte("["+text+","+nested("[", "]", 300)+"]"), into); err == nil {
				t.Errorf("the walk over %q ends early", text)
			}
		}
	})
}

// Arbitrary protobuf causes no panic.
func FuzzProtobuf(f *testing.F) {
	f.Add([]byte(message(2, message(2, message(1, "c")))))
	f.Add([]byte(message(1, message(17, message(7, message(1, "{"))))))
	var w bounded.Weigher
	f.Fuzz(func(t *testing.T, data []byte) {
		if weight, err := w.Protobuf(data, &corev1.Pod{}); err == nil && weight < len(data) {
			t.Errorf("%q weighs %d", data, weight)
		}
	})
}

// allocated returns how many bytes f allocates.
func allocated(f func()) int {
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	f()
	goruntime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}
