package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	// unslugged are the characters that a heading's address does not contain.
	unslugged = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// TestLinks checks that links between the documents lead to pages and headings that exist.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md", "CHANGELOG.md") {
		for _, found := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor := found[1], found[2]
			if strings.Contains(target, "://") {
				continue
			}
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, target)
			} else if anchor != "" && !headings(read(t, to))[anchor] {
				t.Errorf("%s: %s has no heading #%s", page, to, anchor)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// headings returns the addresses of a page's headings.
func headings(page string) map[string]bool {
	out := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		out[strings.ReplaceAll(unslugged.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")] = true
	}
	return out
}
