package request

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// maxSelector is the maximum length of a selector, in bytes, and maxTerms its maximum number of requirements
	// and values: each is compared with every object of a list and every event of a watch.
	maxSelector = 64 << 10
	maxTerms    = 1000
)

// parseLabels parses a labelSelector.
func parseLabels(text string) (labels.Selector, error) {
	if err := checkSelector("labelSelector", len(text)); err != nil {
		return nil, err
	}
	sel, err := labels.Parse(text)
	if err != nil {
		return nil, apierrors.NewBadRequest("unable to parse requirement: labelSelector: " + err.Error())
	}
	requirements, _ := sel.Requirements()
	terms := len(requirements)
	for i := range requirements {
		terms += len(requirements[i].ValuesUnsorted())
	}
	return sel, checkTerms("labelSelector", terms)
}

// ParseFields parses a fieldSelector.
func ParseFields(text string) (fields.Selector, error) {
	if err := checkSelector("fieldSelector", len(text)); err != nil {
		return nil, err
	}
	sel, err := fields.ParseSelector(text)
	if err != nil {
		return nil, apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	return sel, checkTerms("fieldSelector", len(sel.Requirements()))
}

func checkSelector(name string, size int) error {
	if size > maxSelector {
		return apierrors.NewBadRequest(
			fmt.Sprintf("%s: Too long: may not be more than %d bytes, has %d; select by a label that the objects share", name,
				maxSelector, size))
	}
	return nil
}

func checkTerms(name string, terms int) error {
	if terms > maxTerms {
		return apierrors.NewBadRequest(
			fmt.Sprintf("%s: Too many: may not have more than %d requirements and values, has %d; "+
				"select by a label that the objects share", name, maxTerms, terms))
	}
	return nil
}
