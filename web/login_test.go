package web_test

import (
	"encoding/json"
	"net/http"
	"testing"
)

// code requests a sign-in code, as monopod dashboard does.
func (a *api) code(t *testing.T, query string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/monopod/login"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := a.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Code string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	return answer.Code
}

// An address of monopod dashboard signs in once. Afterwards the code is neither in the address bar nor in the history.
func TestDashboardAddress(t *testing.T) {
	t.Parallel()
	a := serve(t)
	first := "/#login=" + a.code(t, "")
	p := open(t, a.url+first)
	p.sees(`document.body.dataset.view === "in" && %s === "kubernetes-admin"`, text("#user"))
	if got := p.value(`location.hash`); got != "" {
		p.t.Errorf("the address contains %v", got)
	}
	p.visit("login=" + a.code(t, "?view=true")) // pasted into the same tab
	p.sees(`document.body?.dataset.view === "in" && %s?.includes("view")`, text("#user"))
	p.clean()

	again := open(t, a.url+first)
	again.sees(`document.body.dataset.view === "out" && %s.includes("run monopod dashboard again for another one")`,
		text("#sign-in-error"))
	again.enter(token) // by hand
	again.sees(`document.body.dataset.view === "in"`)
}
