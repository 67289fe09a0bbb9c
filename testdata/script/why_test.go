package script_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"monopod/apiserver/why"
	"monopod/testdata/harness"
)

// explained waits until the sentence about an object matches. It sends the request of monopod why itself, because
// seventy starts of the program with the race detector would take a minute of CPU.
func explained(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: why REGEXP KIND/NAME [NAMESPACE]")
	}
	want, err := regexp.Compile(args[0])
	ts.Check(err)
	kind, name, _ := strings.Cut(args[1], "/")
	q := url.Values{"kind": {kind}, "name": {name}, "namespace": args[2:]}
	var last string
	if !harness.Eventually(harness.Enough, func() bool {
		_, last = of(ts).Get(why.Path + "?" + q.Encode())
		var a why.Answer
		return json.Unmarshal([]byte(last), &a) == nil && want.MatchString(a.Sentence)
	}) {
		ts.Fatalf("why %s: no sentence matches %q, last answer:\n%s", args[1], args[0], last)
	}
}
