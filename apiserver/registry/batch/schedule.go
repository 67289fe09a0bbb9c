package batch

import (
	"strings"
	"time"
	_ "time/tzdata" // for systems without a time zone database

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// scheduleErrors parses the schedule as the controller does. The time zone belongs to timeZone; zoneMayStay allows one
// in the schedule if the stored schedule has it.
func scheduleErrors(spec *batchv1.CronJobSpec, zoneMayStay bool, path *field.Path) field.ErrorList {
	schedule := spec.Schedule
	if schedule == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if (strings.HasPrefix(schedule, "TZ=") || strings.HasPrefix(schedule, "CRON_TZ=")) &&
		!strings.Contains(schedule, " ") { // the parser panics
		errs = append(errs, field.Invalid(path, schedule, "a schedule must follow the time zone: "+schedule))
	} else if _, err := cron.ParseStandard(schedule); err != nil {
		errs = append(errs, field.Invalid(path, schedule, err.Error()))
	}
	switch zoned := strings.Contains(schedule, "TZ"); {
	case zoned && !zoneMayStay:
		errs = append(errs, field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	case zoned && spec.TimeZone != nil:
		errs = append(errs, field.Invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	}
	return errs
}

// zoneErrors checks that the zone is in the IANA time zone database. It rejects names that could be paths to other
// files.
func zoneErrors(zone string, path *field.Path) field.ErrorList {
	if zone == "" {
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(zone, "/") {
		if !isZonePart(part) {
			return field.ErrorList{field.Invalid(path, zone, "unknown time zone "+zone)}
		}
	}
	var errs field.ErrorList
	if strings.EqualFold(zone, "Local") {
		errs = append(errs,
			field.Invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		errs = append(errs, field.Invalid(path, zone, err.Error()))
	}
	return errs
}

// isZonePart reports whether part has 1 to 14 letters, digits and ".-_+", is not "." or "..", and does not begin with
// "-".
func isZonePart(part string) bool {
	if part == "" || len(part) > 14 || part == "." || part == ".." || part[0] == '-' {
		return false
	}
	return strings.Trim(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_+") == ""
}
