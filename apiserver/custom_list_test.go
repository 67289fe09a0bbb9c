package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry"
)

// sizeOf reads a response and returns its size, and the largest heap while it was read.
func sizeOf(t *testing.T, body io.Reader) (n, heap uint64) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for {
		read, err := body.Read(buf)
		if n += uint64(read); err == io.EOF {
			return n, heap
		}
		if err != nil {
			t.Fatal(err)
		}
		if n%(16<<20) < uint64(read) {
			var stats runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&stats)
			heap = max(heap, stats.HeapAlloc)
		}
	}
}

// A list may be much larger than what is stored, by the defaults of its schema or by the cells of its columns: it is never in memory
// as a whole. The test measures the heap, so it runs alone.
func TestLongListsAreSentInParts(t *testing.T) { //nolint:paralleltest // see above
	a := serve(t)
	const item = `{"type":"object","properties":{"x":{"type":"string"%s}}}`
	schema := `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"list":{"type":"array","items":` + item + `}}}`
	define := func(more string) string {
		text := definitionOf(fmt.Sprintf(schema, more))
		columns := items(`{"name":"A","type":"string","jsonPath":".spec.text"}`, 100)
		return strings.Replace(text, `"storage":true,`, `"storage":true,"additionalPrinterColumns":[`+columns+`],`, 1)
	}
	text, err := yaml.JSONToYAML([]byte(define("")))
	if err != nil {
		t.Fatal(err)
	}
	a.define(string(text))
	const path, objects = "/apis/example.com/v1/namespaces/default/bads", 45
	for i := range objects {
		body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Bad","metadata":{"name":"a%d"},"spec":{"text":%q,"list":[%s]}}`, i, strings.Repeat("ü", 30_000), items("{}", 100))
		if code, out := a.read("POST", path, body); code != http.StatusCreated {
			t.Fatalf("%d %.300v", code, out)
		}
	}
	// The defaults grow after the objects were stored.
	name := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bads.example.com"
	_, cur := a.read("GET", name, "")
	var next map[string]any
	if err := json.Unmarshal([]byte(define(`,"default":"`+strings.Repeat("y", 20_000)+`"`)), &next); err != nil {
		t.Fatal(err)
	}
	cur["spec"] = next["spec"]
	whole, err := json.Marshal(cur)
	if err != nil {
		t.Fatal(err)
	}
	if code, out := a.read("PUT", name, string(whole)); code != http.StatusOK {
		t.Fatalf("%d %.500v", code, out)
	}
	if _, err := registry.NewDefinitions(a.reg).Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for accept, least := range map[string]uint64{"application/json": 80 << 20, "application/json;as=Table;v=v1;g=meta.k8s.io": 65 << 20} {
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		resp := a.do("GET", path, "", "Accept: "+accept)
		n, heap := sizeOf(t, resp.Body)
		if resp.StatusCode != http.StatusOK || n < least || heap > before.HeapAlloc+n/2 {
			t.Errorf("%s: %d, %d bytes, heap %d, before %d", accept, resp.StatusCode, n, heap, before.HeapAlloc)
		}
	}
	for _, accept := range []string{"Accept: application/yaml", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"} {
		resp := a.do("GET", path+"?pretty=true", "", accept)
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", accept, resp.StatusCode)
		}
		resp.Body.Close()
	}
	_, all := a.read("GET", path+"?limit=2", "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	rows, _ := all["rows"].([]any)
	if len(rows) != 2 {
		t.Fatalf("%.300v", all)
	}
	cells := rows[0].(map[string]any)["cells"].([]any)
	if cell, _ := cells[1].(string); len(cells) != 101 || len(cell) > 17<<10 || !strings.HasPrefix(cell, "üü") || !strings.HasSuffix(cell, "ü…") {
		t.Errorf("%d cells, %.30v", len(cells), cells[1])
	}
}
