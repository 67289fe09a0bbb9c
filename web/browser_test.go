package web_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience limits each wait for the page.
const patience = 3 * time.Minute

// browser finds a Chromium, or skips.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("chromium is not installed: apt-get install chromium")
	return ""
}

// page is the dashboard in a browser of its own.
type page struct {
	t        *testing.T
	ctx      context.Context
	problems *problems
}

// open starts a browser and loads the page.
func open(t *testing.T, url string) page {
	t.Helper()
	opts := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(browser(t)), chromedp.UserDataDir(t.TempDir()), chromedp.NoFirstRun, chromedp.NoSandbox,
		chromedp.Headless, chromedp.DisableGPU, chromedp.IgnoreCertErrors, chromedp.WindowSize(1360, 1000),
	}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update",
		"disable-sync", "disable-dev-shm-usage"} {
		opts = append(opts, chromedp.Flag(flag, true))
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // closes the browser and waits for it
			t.Error(err)
		}
		cancel()
		stop()
	})
	p := page{t, ctx, &problems{}}
	if err := chromedp.Listen(ctx, p.problems.listen); err != nil { // starts the browser, which lives as long as ctx
		t.Fatal(err)
	}
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable} {
		if _, err := chromedp.Call(ctx, enable, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	p.load(url)
	return p
}

// load opens the page. The browser aborts loading when the machine's network changes, which happens while other
// tests set up pods; then load tries again.
func (p page) load(url string) {
	p.t.Helper()
	var err error
	for begin := time.Now(); time.Since(begin) < patience; {
		ctx, cancel := context.WithTimeout(p.ctx, patience/4)
		var loaded bool
		if err = chromedp.Do(ctx, chromedp.Navigate(url)); err == nil {
			loaded, err = chromedp.Run(ctx,
				chromedp.Evaluate[bool](`document.readyState === "complete" && document.styleSheets.length === 1`))
		}
		cancel()
		if loaded {
			return
		}
	}
	p.t.Fatalf("the page does not load: %v", err)
}

// on returns the same page with another t.
func (p page) on(t *testing.T) page {
	t.Helper()
	p.t = t
	return p
}

func (p page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits until a JavaScript expression is true in the page. (chromedp.Poll evaluates strings as code, which
// the page's policy forbids.)
func (p page) sees(format string, args ...any) {
	p.t.Helper()
	expression := fmt.Sprintf(format, args...)
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	var err error // the last error; an evaluation fails while the page is loaded again
	for ; ctx.Err() == nil; time.Sleep(25 * time.Millisecond) {
		var is bool
		if is, err = chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")")); is && err == nil {
			return
		}
	}
	p.t.Fatalf("never true: %s: %v\ntext of the page:\n%v", expression, err, p.value(`document.body.innerText`))
}

func (p page) value(expression string) any {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[any](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (p page) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

func (p page) fill(selector, text string) {
	p.t.Helper()
	p.value(fmt.Sprintf("document.querySelector(%q).select() || true", selector))
	p.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// text returns a JavaScript expression for the text of an element.
func text(selector string) string {
	return fmt.Sprintf("document.querySelector(%q)?.innerText", selector)
}

// row returns a JavaScript expression for the row with this name, of a list or of a small table.
func row(name string) string {
	return fmt.Sprintf(
		`[...document.querySelectorAll("table.rows tbody tr")].find((r) => r.querySelector("th")?.innerText === %q)`, name)
}

func cell(name, class string) string {
	return row(name) + fmt.Sprintf(`?.querySelector(%q)?.innerText`, class)
}

// rows is a JavaScript expression for the number of rows that are shown.
const rows = `document.querySelectorAll("table.rows tbody tr:not(.gap)").length`

// visit shows an address of the page.
func (p page) visit(hash string) {
	p.t.Helper()
	p.value(fmt.Sprintf(`(location.hash = %q, true)`, hash))
}

// press clicks the button or link with this text within an element.
func (p page) press(within, text string) {
	p.t.Helper()
	p.sees(`[...document.querySelectorAll("%[1]s button, %[1]s a")].filter((b) => b.textContent.trim() === %[2]q && `+
		`!b.disabled && b.checkVisibility()).slice(0, 1).map((b) => b.click() || true)[0]`, within, text)
}

// key presses keys on the page.
func (p page) key(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// put sets a field's value, as typing does.
func (p page) put(selector, value string) {
	p.t.Helper()
	p.sees(`document.querySelector(%q)`, selector)
	p.value(fmt.Sprintf(
		`{const f = document.querySelector(%q); f.value = %q; f.dispatchEvent(new Event("input", `+
			`{bubbles: true})); f.dispatchEvent(new Event("change", {bubbles: true})); true}`, selector, value))
}

// enter signs in with a token, and waits until a list is shown.
func (p page) enter(token string) {
	p.t.Helper()
	p.sees(`document.body.dataset.view === "out"`)
	p.fill("#token", token)
	p.click("#sign-in button")
	p.sees(`document.body.dataset.view === "in" && %s === "Live"`, text("#link-text"))
}

var pictures = flag.Bool("pictures", false, "write the pictures of the page in docs")

// picture writes a screenshot of the page to docs/NAME.png, with -pictures.
func (p page) picture(name string) {
	p.t.Helper()
	if !*pictures {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 860)); err != nil {
		p.t.Fatal(err)
	}
	image, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile("../docs/"+name+".png", image, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// problems collects the browser's errors: those of scripts, and violations of the Content-Security-Policy.
type problems struct {
	mu  sync.Mutex // guards all
	all []string
}

func (p *problems) listen(ev any) {
	var text string
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		text = ev.ExceptionDetails.Text
		if e := ev.ExceptionDetails.Exception; e != nil {
			text += " " + e.Description
		}
	case *log.EventEntryAdded:
		if ev.Entry.Source != log.EntrySourceNetwork { // 401 and 404 are expected
			text = ev.Entry.Text
		}
	}
	if text == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, text)
}

// clean fails the test if the browser reported an error.
func (p page) clean() {
	p.t.Helper()
	p.problems.mu.Lock()
	defer p.problems.mu.Unlock()
	if len(p.problems.all) > 0 {
		p.t.Errorf("the browser reported errors:\n%s", strings.Join(p.problems.all, "\n"))
	}
}
