package bounded_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/bounded"
)

const digits = "100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"

// Quantities that take too long to parse are refused with their path; the same text in other fields is accepted.
func TestCheckJSON(t *testing.T) {
	t.Parallel()
	limits := func(value string) string {
		return `{"spec":{"containers":[{},{"resources":{"limits":{"cpu":` + value + `}}}]}}`
	}
	const at = "spec.containers[1].resources.limits[cpu]"
	for name, c := range map[string]struct{ text, want string }{
		"usual":             {limits(`"100m"`), ""},
		"exponent":          {limits(`"1e3"`), ""},
		"longest exponent":  {limits(`"1e999"`), ""},
		"long exponent":     {limits(`"1e1000"`), at},
		"huge":              {limits(`"1e99999999"`), at},
		"huge, as a number": {limits(`1E99999999`), at},
		"negative":          {limits(`"1e-99999999"`), at},
		"with a sign":       {limits(`"-1.e+99999999"`), at},
		"no exponent":       {limits(`"` + digits + `"`), at},
		"escaped":           {limits(`"1\u002e5e99999999"`), at},
		"escaped e":         {limits(`"1\u006599999999"`), at},
		"escaped sign":      {limits(`"1e\u002b99999999"`), at},
		"escaped digits":    {limits(`"1e\u0039\u0039\u0039\u0039\u0039"`), at},
		"a map of its own":  {`{"spec":{"overhead":{"cpu":"1e99999999"}}}`, "spec.overhead[cpu]"},
		"behind a pointer": {`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e99999999"}}]}}`,
			"spec.volumes[0].emptyDir.sizeLimit"},
		"a label":            {`{"metadata":{"labels":{"commit":"12e45678"}}}`, ""},
		"a name":             {`{"metadata":{"name":"1e99999999"}}`, ""},
		"an unknown field":   {`{"specs":{"cpu":"1e99999999"}}`, ""},
		"a list for a map":   {`{"spec":{"overhead":["1e99999999"]}}`, ""},
		"not JSON":           {`{"spec":1e99999999`, ""},
		"an image's digest":  {`{"spec":{"containers":[{"image":"a@sha256:12e456789012"}]}}`, ""},
		"a quantity of null": {limits(`null`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkError(t, bounded.CheckJSONQuantities([]byte(c.text), &corev1.Pod{}), c.want)
		})
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want+": ")):
		t.Errorf("got %v, want it refused at %s", err, want)
	}
}

// quantityMessage returns a length-delimited field of a protobuf message.
func quantityMessage(number byte, inner string) string {
	return string([]byte{number<<3 | 2, byte(len(inner))}) + inner
}

// TestCheckProtobuf is like TestCheckJSON for protobuf, in which a Quantity is a message with one string.
func TestCheckProtobuf(t *testing.T) {
	t.Parallel()
	limits := func(amount string) string { // PodSpec is 2, containers 2, resources 8, limits 1
		entry := quantityMessage(1, "cpu") + quantityMessage(2, quantityMessage(1, amount))
		return quantityMessage(2, quantityMessage(2, quantityMessage(8, quantityMessage(1, entry))))
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"commit": "12e45678"}}}
	labelled, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ data, want string }{
		"usual":   {limits("100m"), ""},
		"huge":    {limits("1e99999999"), "spec.containers.resources.limits"},
		"a label": {string(labelled), ""},
		"huge, bounded": {quantityMessage(2,
			quantityMessage(1, quantityMessage(2, quantityMessage(3, quantityMessage(2, quantityMessage(1, "1e99999999")))))),
			""},
		"truncated": {limits("1e99999999")[:20], ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkError(t, bounded.CheckProtobufQuantities([]byte(c.data), &corev1.Pod{}), c.want)
		})
	}
	// The messages above are valid.
	var read corev1.Pod
	if err := read.Unmarshal([]byte(limits("100m"))); err != nil ||
		read.Spec.Containers[0].Resources.Limits.Cpu().String() != "100m" {
		t.Errorf("the test's own protobuf reads as %v, %v", read.Spec, err)
	}
}

// Accepted objects are always decoded quickly.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`"1e999"`, `"1e1000"`, `1e99999999`, `"-.5E+0001000"`, `"1Ei"`, `"` + digits + `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if !json.Valid([]byte(value)) {
			return
		}
		text := []byte(`{"overhead":{"cpu":` + value + `}}`)
		if bounded.CheckJSONQuantities(text, &corev1.PodSpec{}) != nil {
			return
		}
		start := time.Now()
		var spec corev1.PodSpec
		if json.Unmarshal(text, &spec) == nil {
			spec.Overhead.Cpu().Cmp(resource.MustParse("1"))
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s took %s", value, took)
		}
	})
}
