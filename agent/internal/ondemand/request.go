package ondemand

import (
	"errors"
	"fmt"
	"strings"
)

// parseArguments returns the modules that a call of modprobe(8) names: `-q -- NAME` of the kernel, `-q NAME` of iptables,
// `-va NAME…` of Docker. Parameters of modules are refused, and so is every other option.
func parseArguments(arguments []string) (names []string, err error) {
	all := false
	for index, argument := range arguments {
		switch {
		case argument == "--":
			names = append(names, arguments[index+1:]...)
			return checkNames(names, all)
		case argument == "--all":
			all = true
		case argument == "--quiet" || argument == "--verbose":
		case strings.HasPrefix(argument, "-"):
			if strings.Trim(argument, "-qvas") != "" || argument == "-" || strings.HasPrefix(argument, "--") {
				return nil, fmt.Errorf("the option %q is not known here: use -a, -q or -v", argument)
			}
			all = all || strings.Contains(argument, "a")
		default:
			names = append(names, argument)
		}
	}
	return checkNames(names, all)
}

func checkNames(names []string, all bool) ([]string, error) {
	if len(names) == 0 {
		return nil, errors.New("no module is named")
	}
	if len(names) > 1 && !all {
		return nil, errors.New("parameters of modules cannot be given here; for several modules, use -a")
	}
	return names, nil
}

// normalize makes dashes of a name underscores, as the kernel does.
func normalize(name string) string { return strings.ReplaceAll(name, "-", "_") }

// find returns the modules to load for a name or an alias, in order, or nothing if the index does not have it. A line of
// the index has the module's name, the modules to load before it (separated by commas, or "-"), and its aliases. Several
// modules may have the same alias; the first one with it counts.
func find(index, name string) []string {
	wanted := normalize(name)
	for _, line := range strings.Split(index, "\n") {
		fields := strings.Fields(line)
		const leastFields = 2
		if len(fields) < leastFields || !names(fields, wanted) {
			continue
		}
		var order []string
		if before := fields[1]; before != "-" {
			order = strings.Split(before, ",")
		}
		return append(order, fields[0])
	}
	return nil
}

func names(fields []string, wanted string) bool {
	if fields[0] == wanted {
		return true
	}
	for _, alias := range fields[2:] {
		if alias == wanted {
			return true
		}
	}
	return false
}
