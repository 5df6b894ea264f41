package shell

import (
	"fmt"
	"strings"
)

// The status pipe arrives as descriptor 9, the highest that every sh can name. bash moves it to where no command would
// look for a free one.
const (
	statusDescriptor     = 9
	bashStatusDescriptor = 253
)

const (
	// historyCommands are remembered, unless longer than historyBytes: the guest's memory pays for them.
	historyCommands = 1000
	historyBytes    = 16 << 10
)

// dialect writes what a shell reads. Each part is a line at the top level of the script, so that an error that ends
// the command does not end what follows, and "break", "return" and "local" do what they do at a prompt.
//
//	eval 'the command' </dev/null 253>&-   it can neither read the script nor write reports; what the shell saves of
//	                                       both descriptors is closed on exec
//	                                       an empty line brings bash's parser to its senses after an unterminated quote
//	printf … "$? $-" >&253; jobs -p >&253  the report; without reserved words, which bash forgets for good after
//	                                       "[[ a ;;", at a prompt as well
//
// Names are quoted against aliases and called as builtins against functions of the user's. The line that restores "$?" is
// an AND list, which neither "set -e" nor an ERR trap minds.
type dialect struct{ bash bool }

func (d dialect) preamble() string {
	if !d.bash {
		return ""
	}
	return fmt.Sprintf("exec %d>&%d %d>&-; HISTSIZE=%d; unset HISTFILE; shopt -s expand_aliases execfail; set -m\n",
		bashStatusDescriptor, statusDescriptor, statusDescriptor, historyCommands)
}

// command returns the script for one. before is the report of the command before.
func (d dialect) command(sequence uint64, text string, before report) string {
	whole := quote(restore(before) + text + ending(text, before))
	if !d.bash {
		return fmt.Sprintf("\\command eval %[1]s </dev/null %[2]d>&-\n\n"+
			"\\command printf '%%s %%s\\n.\\n' %[3]d \"${%[4]s-$? $-}\" >&%[2]d; \\command set +x; unset %[4]s\n",
			whole, statusDescriptor, sequence, outcomeVariable)
	}
	remember := ""
	if len(text) <= historyBytes {
		remember = "\\builtin history -s -- " + quote(text) + " || :\n"
	}
	return remember + fmt.Sprintf("\\builtin eval %[1]s </dev/null %[2]d>&-\n\n"+
		"\\builtin printf '%%s %%s\\n' %[3]d \"${%[4]s-$? $-}\" >&%[2]d; \\builtin jobs -p >&%[2]d || :; "+
		"\\builtin printf '.\\n' >&%[2]d; \\builtin set +x; \\builtin unset %[4]s\n",
		whole, bashStatusDescriptor, sequence, outcomeVariable)
}

// restore gives the command the "$?" that it would find at a prompt, without a fork for the usual ones.
func restore(before report) string {
	status := ""
	switch before.status {
	case 0:
	case 1:
		status = "false && :"
	default:
		status = fmt.Sprintf("(exit %d) && :", before.status)
	}
	switch {
	case before.traced && status == "":
		return "{ set -x; } 2>/dev/null\n"
	case before.traced:
		return "{ set -x; " + status + "; } 2>/dev/null\n"
	case status != "":
		return status + "\n"
	}
	return ""
}

// outcomeVariable exists between a command and its report only.
const outcomeVariable = "__coppice"

// ending is about two options. "set -e" forgives "! true" and "false && :", but not an eval that returns what these
// leave; "set -x" would show what is not the user's. Where either may be on, the outcome is put into a variable, the
// eval succeeds, and tracing is off until the next command; where the command was broken off, the variable is not set,
// and the outcome is the eval's. It is left out elsewhere, as a here-document without an end would contain it. A
// backslash at the end would take a newline.
func ending(text string, before report) string {
	if !before.strict && !before.traced && !strings.Contains(text, "set") {
		return ""
	}
	newlines := "\n"
	if strings.HasSuffix(text, "\\") {
		newlines = "\n\n"
	}
	return newlines + "{ " + outcomeVariable + "=\"$? $-\"; set +x; } 2>/dev/null\n"
}

func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
