package cmd

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"monopod/agent/cmd/commandline"
	"monopod/testdata/harness"
)

// serveStatus serves answers by path on the socket of a data folder, and returns the folder.
func serveStatus(t *testing.T, answers map[string]string) string {
	t.Helper()
	return harness.DataFolder(t, func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok || strings.HasPrefix(answer, "[-]") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, answer)
	})
}

func TestStatusExitCode(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/monopod/status": `{"version": "v1", "kubernetes": "v1.37.2", "pid": 7, "address": "https://127.0.0.1:6443", ` +
			`"dataDir": "/d", "state": {"kind": "etcd"}}`,
		"/monopod/certs": `[]`, "/readyz": "[+]ping ok\nreadyz check passed\n", "/api/v1/pods": `{}`,
		"/api/v1/nodes": `{"items": [{"metadata": {"name": "box"}, "status": {"conditions": [{"type": "Ready", ` +
			`"status": "True"}]}}]}`,
	}
	for name, c := range map[string]struct {
		health string
		code   int
		says   string
	}{
		"ready": {"[+]ping ok\nreadyz check passed\n", 0,
			"Monopod v1 is ready.\n\n  address   https://127.0.0.1:6443 (Kubernetes v1.37.2)\n"},
		"not ready": {"[-]etcd failed: no answer\nreadyz check failed\n", 1, "Monopod v1 is NOT ready.\n"},
	} {
		answers["/readyz"] = c.health
		var out bytes.Buffer
		cmd := statusCommand(serveStatus(t, answers))
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--data-dir", cmd.Flag("data-dir").DefValue})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		code := 0
		if exit := (*commandline.Exit)(nil); errors.As(err, &exit) {
			code = exit.Code
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if code != c.code || !strings.HasPrefix(out.String(), c.says) ||
			c.code == 1 && !strings.Contains(out.String(), "\nWhat needs attention:\n  - The check etcd failed: no answer.\n") {
			t.Errorf("%s: code %d\n%s", name, code, out.String())
		}
	}
}
