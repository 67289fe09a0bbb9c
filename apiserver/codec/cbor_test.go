package codec_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"monopod/apiserver/codec"
)

// decoded returns JSON as a value.
func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// Kubernetes' decoder reads the output of this package's encoder, and this package reads that of Kubernetes' encoder.
func TestWithKubernetes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`null`, `true`, `[false]`, `0`, `23`, `24`, `-1`, `-25`, `256`, `65536`, `4294967296`, `9223372036854775807`,
		`-9223372036854775808`,
		`1.5`, `-2.25`, `1e300`, `""`, `"a"`, `"é\u0000\"<>\n"`, `{}`, `[]`, `{"a":{"b":[1,2,{"c":null}]},"d":"` +
			strings.Repeat("x", 70000) + `"}`,
		`[` + strings.TrimSuffix(strings.Repeat(`"a",`, 300), ",") + `]`,
	} {
		want := decoded(t, []byte(text))
		theirs, err := direct.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := codec.FromJSON([]byte(text))
		if err != nil {
			t.Fatalf("%.50s: %v", text, err)
		}
		for _, data := range [][]byte{theirs, ours, append(bytes.Clone(codec.Prefix), ours...)} {
			back, err := codec.ToJSON(data)
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
	for _, text := range []string{
		"", "a1", "45616263", "5bffffffffffffffff", "9bffffffffffffffff", "bbffffffffffffffff", "1c",
		"c249010000000000000000", "f97e00", "fa7f800000",
		"e0", "f820", "a10000", "a2416100416100", "c0623230", "0000", strings.Repeat("81", 20_000) + "00",
	} {
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := codec.ToJSON(data); err == nil {
			t.Errorf("%.40s is %s", text, out)
		}
	}
	for text, want := range map[string]string{
		"d6426869": `"aGk="`, "f93e00": "1.5", "fa40200000": "2.5", "f93c00": "1", "f6": "null", "f9c000": "-2",
		"9f01ff": "[1]",
	} {
		data, _ := hex.DecodeString(text)
		if got, err := codec.ToJSON(data); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "{", `{"a"}`, "1 2", "[1,]", "nul"} {
		if out, err := codec.FromJSON([]byte(text)); err == nil {
			t.Errorf("%q is %x", text, out)
		}
	}
}

// Decoding a document allocates no more than its weight, apart from a quarter for the check of its syntax.
func TestWeight(t *testing.T) {
	const length = 256 << 10
	for _, item := range []string{"80", "a0", "a14080", "814100", "00", "40", "a0c0", "5f40ff", "9fff", "bfff", "bf4000ff",
		"a24000410000", "4100", "4300003c"} {
		each, err := hex.DecodeString(item)
		if err != nil {
			t.Fatal(err)
		}
		data := append(append([]byte{0x9f}, bytes.Repeat(each, length/len(each))...), 0xff)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var v any
		err = direct.Unmarshal(data, &v) // checks the syntax of the document first
		runtime.ReadMemStats(&after)
		weight := codec.Weight(data)
		if took := int(after.TotalAlloc - before.TotalAlloc); took > weight+weight/4 {
			t.Errorf("%s: %d bytes weigh %d and take %d (%v)", item, len(data), weight, took, err)
		}
	}
	secret := append([]byte{0x5a, 0, 4, 0, 0}, make([]byte, length)...)
	if weight := codec.Weight(secret); weight > 8*length {
		t.Errorf("%d bytes weigh %d", length, weight)
	}
}

// For any input, ToJSON returns an error, or JSON that FromJSON and ToJSON reproduce.
func FuzzToJSON(f *testing.F) {
	for _, seed := range []string{"a1416101", "82f5f6", "d9d9f7a0", "fb3ff8000000000000", "d6426869", "9f00ff",
		"9bffffffffffffffff"} {
		data, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		codec.Weight(data)
		text, err := codec.ToJSON(data)
		if err != nil {
			return
		}
		again, err := codec.FromJSON(text)
		if err != nil {
			t.Fatalf("%x is %s: %v", data, text, err)
		}
		back, err := codec.ToJSON(again)
		if err != nil || !reflect.DeepEqual(decoded(t, back), decoded(t, text)) {
			t.Errorf("%x is %s and comes back as %s, %v", data, text, back, err)
		}
	})
}
