package cmd

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"monopod/agent/cmd/commandline"
	"monopod/testdata/harness"
)

const (
	nothing = `{"problems": []}`
	broken  = `{"problems": [{"kind": "Deployment", "namespace": "shop", "name": "web", "sentence": "It crashes.", ` +
		`"evidence": ["log: x"], "do": "Fix it."}], "more": 1, "hidden": ["secrets"]}`
	pod = `{"sentence": "It waits.", "evidence": [], "do": "Wait."}`
)

// Without an object, the exit code shows whether something is wrong; --wait repeats the check until nothing is wrong or
// the timeout expires.
func TestWhyExitCode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []string // the server repeats the last one
		args    string
		code    int
		says    string
	}{
		"nothing wrong": {[]string{nothing}, "", 0, "Nothing is known to be wrong.\n"},
		"wrong": {[]string{broken}, "", 1,
			"deployment/web -n shop\n  It crashes.\n  What to do: Fix it.\n\nand 1 object that may be wrong, too\n" +
				"not known: secrets\n\nThe evidence: monopod why KIND/NAME -n NAMESPACE\n"},
		"as JSON":         {[]string{broken}, "-o json", 1, `"sentence": "It crashes."`},
		"waits":           {[]string{broken, nothing}, "--wait", 0, "Nothing is known to be wrong.\n"},
		"timeout":         {[]string{broken}, "--wait --timeout 1ms", 1, "deployment/web -n shop"},
		"an object":       {[]string{pod}, "pod/p", 0, "It waits.\n\nWhat to do: Wait.\n"},
		"object, timeout": {[]string{pod}, "pod/p --wait --timeout 1ms", 1, "It waits.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			dir := harness.DataFolder(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, c.answers[min(int(asked.Add(1)), len(c.answers))-1])
			})
			var out bytes.Buffer
			cmd := whyCommand(dir)
			cmd.SetOut(&out)
			cmd.SetArgs(append(strings.Fields(c.args), "--data-dir", dir))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.Execute()
			code := 0
			if exit := (*commandline.Exit)(nil); errors.As(err, &exit) {
				code = exit.Code
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("code %d\n%s", code, out.String())
			}
		})
	}
}
