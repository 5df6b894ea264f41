package shell

import (
	"fmt"
	"strings"
)

// The status pipe arrives as descriptor 9, the highest that every sh can name. bash moves it to a number where no
// command looks for a free descriptor.
const (
	statusDescriptor     = 9
	bashStatusDescriptor = 253
)

const (
	// historyCommands is the number of commands that bash remembers. Commands longer than historyBytes are not
	// remembered, because the history uses the guest's memory.
	historyCommands = 1000
	historyBytes    = 16 << 10
)

// dialect writes the script that a shell reads. Each part is a line at the top level of the script, so that an error
// that ends the command does not end what follows, and "break", "return" and "local" behave as at a prompt.
//
//	eval 'the command' </dev/null 253>&-   the command can neither read the script nor write reports; the shell's saved
//	                                       copies of both descriptors are closed on exec
//	                                       the empty line resynchronizes bash's parser after an unterminated quote
//	printf … "$? $-" >&253; jobs -p >&253  the report; it has no reserved words, because bash forgets them for good
//	                                       after "[[ a ;;", at a prompt as well
//
// Names are quoted against aliases, and called as builtins against the user's functions. The line that restores "$?" is
// an AND list, which triggers neither "set -e" nor an ERR trap.
type dialect struct{ bash bool }

func (d dialect) preamble() string {
	if !d.bash {
		return ""
	}
	return fmt.Sprintf("exec %d>&%d %d>&-; HISTSIZE=%d; unset HISTFILE; shopt -s expand_aliases execfail; set -m\n",
		bashStatusDescriptor, statusDescriptor, statusDescriptor, historyCommands)
}

// command returns the script for one command. before is the report of the previous command.
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

// restore gives the command the "$?" that it would find at a prompt. The usual values need no fork.
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

// outcomeVariable exists only between a command and its report.
const outcomeVariable = "__coppice"

// ending is needed for two options. "set -e" tolerates "! true" and "false && :", but not an eval that returns their
// status. "set -x" would show lines that are not the user's. If either may be on, the outcome is put into a variable,
// the eval succeeds, and tracing is off until the next command. If the command was aborted, the variable is not set,
// and the outcome is the eval's. Otherwise the ending is left out, because a here-document without an end would contain
// it. A backslash at the end of the command would remove a newline.
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
