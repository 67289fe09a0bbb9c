package fake

import (
	"path"
	"slices"
	"strings"

	"monopod/agent/runtime/fake/program"
)

// scripted translates sh -c SCRIPT to a command of the sample program. It knows simple scripts, as tests use them:
// sleep 2; echo done && exit 3. nil: the command is not such a script, or needs a real shell.
func scripted(words []string) []string {
	if len(words) < 3 || !slices.Contains([]string{"sh", "ash", "bash", "dash"}, path.Base(words[0])) ||
		!strings.HasPrefix(words[1], "-") || !strings.HasSuffix(words[1], "c") {
		return nil
	}
	const and = "\x00" // marks the end of a command that && follows
	parts := strings.FieldsFunc(strings.ReplaceAll(words[2], "&&", and+";"),
		func(c rune) bool { return c == ';' || c == '\n' })
	out := []string{"do"}
	for i, text := range parts {
		text, needed := strings.CutSuffix(text, and)
		command := strings.Fields(strings.NewReplacer(`"`, "", "'", "").Replace(text))
		if len(command) == 0 && !needed {
			continue
		}
		if len(command) == 0 || strings.ContainsAny(text, "$`|&<>(){}*?\\#") {
			return nil
		}
		switch command[0] = path.Base(command[0]); {
		case !slices.Contains([]string{"true", "false", "exit", "sleep", "echo"}, command[0]) ||
			slices.Contains(command, "then"):
			return nil
		case len(command) == 1 && command[0] == "exit":
			command = append(command, "0")
		case command[0] == "false" && !needed && i < len(parts)-1 && !strings.Contains(words[1], "e"):
			continue // the script goes on
		}
		if !program.Understands(command) {
			return nil
		}
		if len(out) > 1 {
			out = append(out, "then")
		}
		if out = append(out, command...); command[0] == "exit" {
			return out
		}
	}
	if len(out) == 1 { // nothing is left
		return []string{"true"}
	}
	return out
}
