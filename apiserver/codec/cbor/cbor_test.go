package cbor_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"monopod/apiserver/codec/cbor"
)

// decoded returns JSON as a value.
func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// What is encoded here is decoded by Kubernetes' clients, and what they encode here.
func TestWithKubernetes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`null`, `true`, `[false]`, `0`, `23`, `24`, `-1`, `-25`, `256`, `65536`, `4294967296`, `9223372036854775807`, `-9223372036854775808`,
		`1.5`, `-2.25`, `1e300`, `""`, `"a"`, `"é\u0000\"<>\n"`, `{}`, `[]`, `{"a":{"b":[1,2,{"c":null}]},"d":"` + strings.Repeat("x", 70000) + `"}`,
		`[` + strings.TrimSuffix(strings.Repeat(`"a",`, 300), ",") + `]`,
	} {
		want := decoded(t, []byte(text))
		theirs, err := direct.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := cbor.FromJSON(nil, []byte(text))
		if err != nil {
			t.Fatalf("%.50s: %v", text, err)
		}
		for _, data := range [][]byte{theirs, ours, append(bytes.Clone(cbor.Prefix), ours...)} {
			back, err := cbor.ToJSON(data, 1<<20)
			if err != nil || !reflect.DeepEqual(decoded(t, back), want) {
				t.Errorf("%.50s: %.50s, %v", text, back, err)
			}
		}
		var got any
		if err := direct.Unmarshal(ours, &got); err != nil {
			t.Errorf("%.50s: %v", text, err)
		}
		if again, err := json.Marshal(got); err != nil || !reflect.DeepEqual(decoded(t, again), want) {
			t.Errorf("%.50s: Kubernetes reads %.50s, %v", text, again, err)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "ends within a value",
		"a1":                                 "ends within a value",
		"45616263":                           "ends within a text of 5 bytes",
		"5bffffffffffffffff":                 "ends within a text",
		"9bffffffffffffffff":                 "ends within a value",
		"bbffffffffffffffff":                 "ends within a value",
		"9f00ff":                             "indefinite lengths",
		"1c":                                 "reserved values",
		"c249010000000000000000":             "the tag 2 is not supported",
		"c11a514b67b0":                       "the tag 1 is not supported",
		"d61a514b67b0":                       "the tag 22 is not supported for this value",
		"f97e00":                             "not finite",
		"fa7f800000":                         "not finite",
		"e0":                                 "the simple value 0 is not supported",
		"f820":                               "the simple value 32 is not supported",
		"a10000":                             "the name of a member is not a text",
		"a2416100416100":                     `the member "a" is repeated`,
		"41ff":                               "not valid UTF-8",
		"0000":                               "1 bytes follow the document",
		"3bffffffffffffffff":                 "out of range",
		strings.Repeat("81", 300) + "00":     "must not be nested more than 256 levels deep",
		strings.Repeat("d9d9f7", 300) + "00": "must not be nested more than 256 levels deep",
		"9a00100000" + strings.Repeat("00", 1<<20): cbor.ErrTooLarge.Error(),
	} {
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cbor.ToJSON(data, 1<<20); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{"d6426869": `"aGk="`, "d5426869": `"aGk"`, "d7426869": `"6869"`, "c0623230": `"20"`, "f93e00": "1.5", "f90001": "5.960464477539063e-8", "fa40200000": "2.5", "f93c00": "1", "f7": "null", "f9c000": "-2"} {
		data, _ := hex.DecodeString(text)
		if got, err := cbor.ToJSON(data, 100); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "{", `{"a"}`, "1 2", "[1,]", "nul"} {
		if out, err := cbor.FromJSON(nil, []byte(text)); err == nil {
			t.Errorf("%q is %x", text, out)
		}
	}
}

// Whatever a client sends is an error or JSON that comes back as it is.
func FuzzToJSON(f *testing.F) {
	for _, seed := range []string{"a1416101", "82f5f6", "d9d9f7a0", "fb3ff8000000000000", "d6426869", "9f00ff", "9bffffffffffffffff"} {
		data, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := cbor.ToJSON(data, 1<<20)
		if err != nil {
			return
		}
		again, err := cbor.FromJSON(nil, text)
		if err != nil {
			t.Fatalf("%x is %s: %v", data, text, err)
		}
		back, err := cbor.ToJSON(again, 8<<20)
		if err != nil || !reflect.DeepEqual(decoded(t, back), decoded(t, text)) {
			t.Errorf("%x is %s and comes back as %s, %v", data, text, back, err)
		}
	})
}
