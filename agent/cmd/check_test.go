package cmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"monopod/agent/cmd/commandline"
	"monopod/agent/node/check"
)

// The worst verdict determines the exit code, in both formats.
func TestCheckExitCode(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		listen, format string
		code           int
		verdict        check.Verdict
	}{{"127.0.0.1:0", "text", 0, check.OK}, {l.Addr().String(), "text", 1, check.Missing},
		{l.Addr().String(), "json", 1, check.Missing}} {
		cmd := checkCommand(t.TempDir(), time.Time{})
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{"--runtime=fake", "--listen", c.listen, "-o", c.format})
		err := cmd.ExecuteContext(t.Context())
		code := 0
		if exit := (*commandline.Exit)(nil); errors.As(err, &exit) {
			code = exit.Code
		} else if err != nil {
			t.Fatal(err)
		}
		if code != c.code {
			t.Errorf("%+v: exit code %d\n%s", c, code, &out)
		}
		if c.format == "json" {
			var results []check.Result
			if err := json.Unmarshal(out.Bytes(), &results); err != nil || check.Worst(results) != c.verdict {
				t.Errorf("the worst verdict is not %s, error %v:\n%s", c.verdict, err, &out)
			}
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			if f := strings.Fields(line); f[1] == "port" && f[0] != string(c.verdict) {
				t.Errorf("%+v: unexpected verdict: %s", c, line)
			}
		}
	}
}
