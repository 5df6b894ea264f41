/**
 * Scripts for shells. They pass the words of the line to `coppice complete`, whose last argument is the word to complete, and
 * offer its answers.
 */

const BASH = `_coppice() {
  local IFS=$'\\n'
  local words=("\${COMP_WORDS[@]:1:COMP_CWORD}")
  COMPREPLY=($(coppice complete -- "\${words[@]}" 2>/dev/null))
  [[ \${#COMPREPLY[@]} -eq 0 ]] && compopt -o default
}
complete -F _coppice coppice
`;

const ZSH = `#compdef coppice
_coppice() {
  local -a found
  found=("\${(@f)$(coppice complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "\${found[*]}" ]]; then compadd -a found; else _files; fi
}
compdef _coppice coppice
`;

const FISH = `function __coppice_complete
  set -l words (commandline -opc)
  coppice complete -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c coppice -a '(__coppice_complete)'
`;

export const SCRIPTS: Readonly<Record<string, string>> = { bash: BASH, zsh: ZSH, fish: FISH };
