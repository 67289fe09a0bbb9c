package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"monopod/apiserver"
	"monopod/apiserver/registry"
)

// meter is a ResponseWriter that measures the heap in Write: the writer waits meanwhile, so the heap contains what the
// writer keeps.
type meter struct {
	header        http.Header
	code          int
	n, heap, next uint64
}

func (m *meter) Header() http.Header { return m.header }

func (m *meter) WriteHeader(code int) { m.code = code }

func (m *meter) Write(p []byte) (int, error) {
	if m.n += uint64(len(p)); m.n >= m.next {
		m.next = m.n + 1<<20
		m.heap = max(m.heap, heap())
	}
	return len(p), nil
}

// heap returns the size of the reachable objects.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// The defaults of a schema and the cells of its columns can make a list much larger than the stored objects: the server
// never has the whole list in memory. The test measures the heap, so it runs alone.
func TestLongListsAreSentInParts(t *testing.T) { //nolint:paralleltest // see above
	// An eighth of the server's limit, and a list in proportion: the whole takes half a minute of CPU under the race
	// detector.
	const whole, columns = 8 << 20, 13
	a, handler := serveBoth(t, func(cfg *apiserver.Config) { cfg.MaxWholeList = whole })
	const item = `{"type":"object","properties":{"x":{"type":"string"%s}}}`
	schema := `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"list":{"type":"array","items":` + item + `}}}`
	define := func(field string) string {
		text := definitionOf(fmt.Sprintf(schema, field))
		more := items(`{"name":"A","type":"string","jsonPath":".spec.text"}`, columns)
		return strings.Replace(text, `"storage":true,`, `"storage":true,"additionalPrinterColumns":[`+more+`],`, 1)
	}
	text, err := yaml.JSONToYAML([]byte(define("")))
	if err != nil {
		t.Fatal(err)
	}
	a.define(string(text))
	const path, objects = "/apis/example.com/v1/namespaces/default/bads", 45
	for i := range objects {
		body := fmt.Sprintf(
			`{"apiVersion":"example.com/v1","kind":"Bad","metadata":{"name":"a%d"},"spec":{"text":%q,"list":[%s]}}`, i,
			strings.Repeat("ü", 30_000), items("{}", columns))
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
	changed, err := json.Marshal(cur)
	if err != nil {
		t.Fatal(err)
	}
	if code, out := a.read("PUT", name, string(changed)); code != http.StatusOK {
		t.Fatalf("%d %.500v", code, out)
	}
	if _, err := registry.NewDefinitions(a.reg).Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, form := range []struct {
		query, accept string
		least         uint64
	}{
		{"", "application/json", whole + 2<<20}, {"?pretty=true", "application/json", whole + 2<<20},
		{"", "application/yaml", whole + 2<<20},
		{"", "application/json;as=Table;v=v1;g=meta.k8s.io", whole + 1<<20}, {"", "application/cbor", whole + 2<<20},
	} {
		before, m := heap(), &meter{header: http.Header{}, code: http.StatusOK}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+form.query, nil)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Accept", form.accept)
		handler.ServeHTTP(m, req)
		if m.code != http.StatusOK || m.n < form.least || m.heap > before+m.n/2 {
			t.Errorf("%s: %d, %d bytes, heap %d, before %d", form.accept, m.code, m.n, m.heap, before)
		}
	}
	_, all := a.read("GET", path+"?limit=2", "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	rows, _ := all["rows"].([]any)
	if len(rows) != 2 {
		t.Fatalf("%.300v", all)
	}
	cells := rows[0].(map[string]any)["cells"].([]any)
	if cell, _ := cells[1].(string); len(cells) != columns+1 || len(cell) > 17<<10 || !strings.HasPrefix(cell, "üü") ||
		!strings.HasSuffix(cell, "ü…") {
		t.Errorf("%d cells, %.30v", len(cells), cells[1])
	}
}
