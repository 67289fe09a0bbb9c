// Package words puts facts about objects into words: the parts of the sentences of package why.
package words

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/apiserver/kit/client"
)

// maxText is the length of a message that is quoted, in characters.
const maxText = 400

var statusCode = regexp.MustCompile(`statuscode: (\d+)`)

// Name returns kind and name: Pod web.
func Name(obj client.Object) string { return Kind(obj) + " " + obj.GetName() }

// Kind returns the kind of an object.
func Kind(obj client.Object) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if kind == "" { // of a typed object that was made in process
		kind = reflect.TypeOf(obj).Elem().Name()
	}
	return kind
}

// Ago is a duration as kubectl prints it; of the future, 0s.
func Ago(d time.Duration) string {
	return duration.HumanDuration(max(d, 0))
}

// Bytes is an amount of memory or disk: 512 B, 4.1 MiB, 30 GiB.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n), -1
	for size >= 1024 && unit < len(units)-1 {
		size /= 1024
		unit++
	}
	if size >= 10 {
		return fmt.Sprintf("%.0f %ciB", size, units[unit])
	}
	return fmt.Sprintf("%.1f %ciB", size, units[unit])
}

const units = "KMGTP"

// Clip shortens a message to what fits into a sentence, without its final period.
func Clip(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) > maxText {
		text = string([]rune(text)[:maxText]) + "…"
	}
	return strings.TrimSuffix(text, ".")
}

var rpcError = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// Cause is the message of an error of the runtime, without the words of the protocol.
func Cause(text string) string {
	return Clip(strings.TrimSuffix(rpcError.ReplaceAllString(text, ""), ": unknown"))
}

// Reason joins the reason and the message of a condition.
func Reason(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "":
		return Clip(message)
	}
	return Clip(message) + " (" + reason + ")"
}

// List is "finalizer a" or "finalizers a, b".
func List(noun string, names []string) string {
	switch {
	case len(names) == 1:
	case strings.HasSuffix(noun, "y"):
		noun = strings.TrimSuffix(noun, "y") + "ies"
	default:
		noun += "s"
	}
	return noun + " " + strings.Join(names, ", ")
}

// Count is "1 pod" or "2 pods".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Lower begins a sentence's continuation: its first letter is small, unless it is a kind's or an abbreviation's.
func Lower(sentence string) string {
	first, size := utf8.DecodeRuneInString(sentence)
	if word, _, _ := strings.Cut(sentence, " "); word != "Container" && word != "Claim" && word != "Init" &&
		word != "The" && word != "No" && word != "Sidecar" {
		return sentence
	}
	return string(unicode.ToLower(first)) + sentence[size:]
}

// Condition is a condition as evidence.
func Condition(c metav1.Condition) string {
	return fmt.Sprintf("condition %s is %s: %s", c.Type, c.Status, Reason(c.Reason, c.Message))
}

// Conditions returns the conditions of an object of any kind, also those of a route's parents and of a Gateway's
// listeners; none if it has no status of the usual form.
func Conditions(obj client.Object) []metav1.Condition {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil
	}
	status, _ := content["status"].(map[string]any)
	all := conditionsIn(status)
	for _, name := range []string{"parents", "listeners"} { // of other kinds they may be anything
		parts, _ := status[name].([]any)
		for _, p := range parts {
			part, _ := p.(map[string]any)
			all = append(all, conditionsIn(part)...)
		}
	}
	return all
}

// conditionsIn returns the conditions in a status or a part of one; none if they have another form.
func conditionsIn(part map[string]any) []metav1.Condition {
	var typed struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	in := map[string]any{"conditions": part["conditions"]}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(in, &typed) != nil {
		return nil
	}
	return typed.Conditions
}

// Plain removes control characters, so that a log cannot write to the terminal of who reads it.
func Plain(line string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, line)
}

// Ends says how a container ended, as the rest of a sentence about it.
func Ends(t *corev1.ContainerStateTerminated) string {
	after := ""
	if ran := t.FinishedAt.Sub(t.StartedAt.Time); ran > 0 && !t.StartedAt.IsZero() {
		after = " after " + Ago(ran)
	}
	switch {
	case t.Reason == "ContainerStatusUnknown":
		return "is gone, and its end was not observed"
	case t.Reason == "Unknown" && t.ExitCode == 255: // containerd's, of a container that it does not find again
		return "ended when its node or the container runtime was restarted" + after
	case t.ExitCode == 0:
		return "ends with exit code 0" + after + " although it should keep running"
	case Signal(t) != 0:
		return fmt.Sprintf("is ended by signal %s (exit code %d)%s", unix.SignalName(Signal(t)), t.ExitCode, after)
	}
	return fmt.Sprintf("crashes: it ends with exit code %d%s", t.ExitCode, after)
}

// End describes an end as evidence.
func End(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	if s := Signal(t); s != 0 {
		text += ", signal " + unix.SignalName(s)
	}
	if t.Reason != "" {
		text += ", " + t.Reason
	}
	return text
}

// Signal returns the signal that ended a container, or 0.
func Signal(t *corev1.ContainerStateTerminated) syscall.Signal {
	switch {
	case t.Signal != 0:
		return syscall.Signal(t.Signal)
	case t.ExitCode > 128 && t.ExitCode <= 128+64 && unix.SignalName(syscall.Signal(t.ExitCode-128)) != "":
		return syscall.Signal(t.ExitCode - 128)
	}
	return 0
}

// Handler says what a probe does; nil: it is no longer in the spec.
func Handler(p *corev1.Probe) string {
	switch {
	case p == nil:
	case p.HTTPGet != nil:
		return fmt.Sprintf("its HTTP GET of %s on port %s", p.HTTPGet.Path, p.HTTPGet.Port.String())
	case p.TCPSocket != nil:
		return "its connection to port " + p.TCPSocket.Port.String()
	case p.GRPC != nil:
		return fmt.Sprintf("its gRPC health check on port %d", p.GRPC.Port)
	case p.Exec != nil:
		return fmt.Sprintf("its command %q", strings.Join(p.Exec.Command, " "))
	}
	return "its reason is no longer known"
}

// Probe shortens the message of a failed probe.
func Probe(message string) string {
	switch _, rest, _ := strings.Cut(message, ": "); {
	case statusCode.MatchString(message):
		return "the answer has the HTTP status " + statusCode.FindStringSubmatch(message)[1]
	case strings.Contains(message, "connection refused"):
		return "nothing listens on its port (connection refused)"
	case strings.Contains(message, "deadline exceeded"), strings.Contains(message, "timed out"),
		strings.Contains(message, "i/o timeout"), strings.Contains(message, "Client.Timeout"):
		return "no answer within timeoutSeconds"
	default:
		return Clip(rest)
	}
}
