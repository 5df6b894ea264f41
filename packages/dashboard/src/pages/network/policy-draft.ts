/** A policy as the editor has it: the text of two lists, one rule on each line. */
export interface PolicyDraft {
  allow: string;
  deny: string;
}

export interface Rules {
  allow: readonly string[];
  deny: readonly string[];
}

export const EMPTY_DRAFT: PolicyDraft = { allow: '', deny: '' };

export function toDraft({ allow, deny }: Rules): PolicyDraft {
  return { allow: allow.join('\n'), deny: deny.join('\n') };
}

export function toRules({ allow, deny }: PolicyDraft): Rules {
  return { allow: readLines(allow), deny: readLines(deny) };
}

function readLines(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

export function isSameRules(one: Rules, other: Rules): boolean {
  return one.allow.join('\n') === other.allow.join('\n') && one.deny.join('\n') === other.deny.join('\n');
}

/** Returns `network` of a request. A list without rules is left out. */
export function toNetworkOption({ allow, deny }: Rules): { allow?: string[]; deny?: string[] } {
  return { ...(allow.length > 0 && { allow: [...allow] }), ...(deny.length > 0 && { deny: [...deny] }) };
}
