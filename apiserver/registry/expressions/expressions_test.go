package expressions

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// A call that takes too much memory or time is rejected before it begins. The memory of many calls exceeds the budget.
func TestBounds(t *testing.T) {
	t.Parallel()
	const (
		// 100 kB
		million = `'xxxxxxxxxx'.replace('x', 'xxxxxxxxxx').replace('x', 'xxxxxxxxxx').replace('x', ` +
			`'xxxxxxxxxx').replace('x', 'xxxxxxxxxx')`
		cost = "actual cost limit exceeded"
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
		`lists.range(10000000).size() > 0`:                             "a list of 10000000 numbers exceeds the maximum of 100000",
		`lists.range(90000).distinct().size() > 0`:                     cost,
		`[1, 2, 1].distinct().size() == 2`:                             "",
		`sets.contains(lists.range(40000), lists.range(40000))`:        cost,
		`sets.intersects([1, 2], [2]) && sets.equivalent([1], [1])`:    "",
		`lists.range(100).map(i, lists.range(100000)).size() > 0`:      cost,
		`lists.range(100).map(i, 'x'.replace('x', text)).size() > 0`:   cost,
		`lists.range(100).map(i, '%s'.format([text])).size() > 0`:      cost,
		`lists.range(100).all(i, lists.range(3000).distinct() != [])`:  cost,
		`text.matches('a{300}')`:                                       "the search for a pattern of 300 instructions in 1000000 bytes would take more than",
		`text.matches('` + strings.Repeat("a{1000}", 30) + `')`:        "exceeds the maximum of 20000",
		`text.find('` + strings.Repeat("a{1000}", 30) + `') == ''`:     "exceeds the maximum of 20000",
		`text.matches(lists.range(30).map(i, 'a{1000}').join(''))`:     cost,
		`text.matches(text)`:                                           cost,
		`text.find(lists.range(15).map(i, 'a{1000}').join('')) == ''`:  cost,
		`text.findAll('.*b|x').size() > 0`:                             "takes more than 2s",
		`text.findAll(['.*b', 'x'].join('|')).size() > 0`:              "takes more than 2s",
		`text.findAll('x', 3) == ['x', 'x', 'x']`:                      "",
		`text.findAll('x', 0) == [] && text.findAll('y') == []`:        "",
		`'ab'.matches('^a') && 'ab'.matches(['^', 'a'].join(''))`:      "",
		`'ab'.find('b$') == 'b' && 'ab'.find('c') == ''`:               "",
		`'a'.matches(['(', ''].join(''))`:                              "missing closing )",
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

// evaluate returns the error of an expression, whose value must be true.
func evaluate(t *testing.T, expression string, variables map[string]any) error {
	t.Helper()
	set, err := Base().Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{cel.Variable("text", cel.StringType)}})
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
		return err
	}
	out, _, err := program.ContextEval(t.Context(), variables)
	if err == nil && out.Value() != true {
		t.Errorf("%s is %v", expression, out)
	}
	return err
}

// All patterns have the same matches as Go's own functions.
func TestFindAll(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"", "a", "a*", "a|b*", "^a", "b$", `\b`, "(a)(b)?", ".", "é"} {
		for _, text := range []string{"", "a", "aab", "baab bé", "ééa"} {
			p, err := compilePattern(pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{-1, 0, 1, 2} {
				got, err := p.findAll(text, n)
				if want := p.FindAllString(text, n); err != nil || !slices.Equal(got, want) {
					t.Errorf("%q in %q, %d times: %q, %v, want %q", pattern, text, n, got, err, want)
				}
			}
		}
	}
}

// FuzzExpression compiles an expression and evaluates it within the budget of a policy. This ends soon and without a
// panic.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{
		`text.matches('(a*)*b')`, `text.findAll('.*b|x', 5).map(x, x.size())`,
		`[1, 2, 3].map(i, [i, i].map(j, text + string(j)))`,
		`text.split('').map(c, text.split(c)).size()`, `quantity('1e9').add(quantity('1')).compareTo(quantity('0'))`,
		`url('http://a/?b=c').getQuery()`,
		`ip('::1').family() == 6 || cidr('10.0.0.0/8').containsIP('10.0.0.1')`, `'%s %d %.3f %x'.format([text, 1, 1.5, 'a'])`,
		`duration('1h') + timestamp('2026-01-01T00:00:00Z')`,
		`optional.of(text).orValue('')`, `{'a': [text]}.?a[?0].hasValue()`,
		`text.lowerAscii().replace('x', 'yy', 3).indexOf('y', 2)`, `semver('1.2.3').isLessThan(semver('2.0.0'))`,
		`format.dns1123Label().validate(text).hasValue()`, `[3, 1, 2].isSorted() ? [1].sum() : [2].max()`,
		`base64.encode(bytes(text)).size()`, `text.charAt(-1)`, `lists.range(-1)`,
	} {
		f.Add(seed)
	}
	set, err := Base().Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{cel.Variable("text", cel.StringType)},
		ProgramOptions: []cel.ProgramOption{cel.CostLimit(celconfig.PerCallLimit),
			cel.InterruptCheckFrequency(celconfig.CheckFrequency)}})
	if err != nil {
		f.Fatal(err)
	}
	env := set.StoredExpressionsEnv()
	text := strings.Repeat("xay ", 250)
	f.Fuzz(func(t *testing.T, expression string) {
		if len(expression) > 10_000 {
			return
		}
		began := time.Now()
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			return
		}
		program, err := env.Program(ast)
		if err != nil {
			return
		}
		_, _, _ = program.ContextEval(t.Context(), map[string]any{"text": text}) // errors are allowed
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%q took %v", expression, took)
		}
	})
}
