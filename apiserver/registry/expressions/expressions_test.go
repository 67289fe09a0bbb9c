package expressions

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// What takes too much memory or time in one call is refused before it begins: hours of comparisons, whose cost is charged afterwards,
// take no time. What many calls keep exceeds the budget.
func TestBounds(t *testing.T) {
	t.Parallel()
	const (
		million = `'xxxxxxxxxx'.replace('x', 'xxxxxxxxxx').replace('x', 'xxxxxxxxxx').replace('x', 'xxxxxxxxxx').replace('x', 'xxxxxxxxxx')` // 100 kB
		cost    = "actual cost limit exceeded"
	)
	for expression, want := range map[string]string{
		`quantity('1e99999999').isGreaterThan(quantity('1'))`:          "the quantity is out of range",
		`isQuantity('1e99999999')`:                                     "the quantity is out of range",
		`text.replace('', text).size() > 0`:                            "bytes exceeds the maximum of 4194304",
		`text.replace('x', text, 100).size() > 0`:                      "bytes exceeds the maximum of 4194304",
		`text.replace('x', text, 2).size() > 0`:                        "",
		`text.replace('x', '', -1).size() == 0`:                        "",
		`lists.range(100).map(i, text).join('').size() > 0`:            "bytes exceeds the maximum of 4194304",
		`lists.range(100).map(i, 'x').join(text).size() > 0`:           "bytes exceeds the maximum of 4194304",
		`['a', 'b'].join(',') == 'a,b' && ['a'].join() == 'a'`:         "",
		`'%.1000000000f'.format([1.5]).size() > 0`:                     "precision 1000000000 exceeds the maximum of 100",
		`'%s'.format([lists.range(100).map(i, text)]).size() > 0`:      "bytes exceeds the maximum of 4194304",
		`'%s'.format([lists.range(100).map(i, {text: 1})]).size() > 0`: "bytes exceeds the maximum of 4194304",
		`'%.2f %s %d'.format([1.5, 'a', 2]) == '1.50 a 2'`:             "",
		`lists.range(10000000).size() > 0`:                             "a list of 10000000 numbers exceeds the maximum of 1000000",
		`lists.range(900000).distinct().size() > 0`:                    cost,
		`[1, 2, 1].distinct().size() == 2`:                             "",
		`sets.contains(lists.range(400000), lists.range(400000))`:      cost,
		`sets.intersects([1, 2], [2]) && sets.equivalent([1], [1])`:    "",
		`lists.range(100).map(i, lists.range(100000)).size() > 0`:      cost,
		`lists.range(100).map(i, 'x'.replace('x', text)).size() > 0`:   cost,
		`lists.range(100).map(i, '%s'.format([text])).size() > 0`:      cost,
		`lists.range(100).all(i, lists.range(3000).distinct() != [])`:  cost,
		million + `.size() == 100000`:                                  "",
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			switch err := evaluate(t, expression, map[string]any{"text": strings.Repeat("x", 1_000_000)}); {
			case want == "" && err != nil:
				t.Error(err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// evaluate returns the error of an expression; its value is true.
func evaluate(t *testing.T, expression string, variables map[string]any) error {
	t.Helper()
	set, err := Base().Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: []cel.EnvOption{cel.Variable("text", cel.StringType)}})
	if err != nil {
		t.Fatal(err)
	}
	env := set.StoredExpressionsEnv()
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := program.ContextEval(t.Context(), variables)
	if err == nil && out.Value() != true {
		t.Errorf("%s is %v", expression, out)
	}
	return err
}
