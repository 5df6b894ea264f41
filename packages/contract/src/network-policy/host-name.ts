/** Host names: in rules, and as a guest shows them in an SNI, a Host header or a DNS query. */
import type { RuleFault } from './rule-fault.ts';

const MAX_NAME_LENGTH = 253;
const MAX_LABEL_LENGTH = 63;
/** Underscores occur in names that clients dial (for example of buckets), though not in names of machines. */
const LABEL = /^[a-z0-9_-]+$/u;
const LABELS = /^(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}$/u;
const ASCII = /^\p{ASCII}*$/u;
/** A name with other scripts may contain only these and non-ASCII characters: other ASCII has a meaning in a URL. */
const PLAIN_OR_FOREIGN = /^(?:[A-Za-z0-9._-]|\P{ASCII})+$/u;
/** Many programs read a name that ends in a number as an address: `0x7f.1`, `127.1`, `2130706433`. */
const ENDS_IN_NUMBER = /(?:^|\.)(?:\d+|0x[0-9a-f]*)$/u;

/** Returns the canonical spelling of a name: lower case, no dot at the end, A-labels (`xn--…`) for non-ASCII labels. */
export function readHostName(text: string): { name: string } | RuleFault {
  const ascii = ASCII.test(text) ? text : toALabels(text);
  if (ascii === undefined) return { fault: 'has characters that no host name can contain' };
  const name = withoutEndDot(ascii.toLowerCase());
  const fault = findNameFault(name);
  return fault === undefined ? { name } : { fault };
}

/**
 * Returns a name that a guest shows, in the spelling of the rules; undefined if no rule could reliably match it.
 * Programs send A-labels, so non-ASCII text is not a name.
 */
export function foldSeenName(text: string): string | undefined {
  if (text.length > MAX_NAME_LENGTH + 1 || !ASCII.test(text)) return undefined;
  const name = withoutEndDot(text.toLowerCase());
  return findNameFault(name) === undefined ? name : undefined;
}

function findNameFault(name: string): string | undefined {
  if (name === '') return 'has no name; write it like api.example.com';
  if (name.length > MAX_NAME_LENGTH) return `is longer than the ${MAX_NAME_LENGTH} characters of a host name`;
  if (ENDS_IN_NUMBER.test(name)) {
    return 'is not a host name because it ends in a number; an address has four decimal numbers, like 203.0.113.7';
  }
  if (LABELS.test(name)) return undefined;
  return findLabelFault(name);
}

function findLabelFault(name: string): string {
  for (const label of name.split('.')) {
    if (label === '') return 'has two dots in a row, or one at its start';
    if (label.length > MAX_LABEL_LENGTH) return `has a part longer than ${MAX_LABEL_LENGTH} characters`;
    if (!LABEL.test(label)) break;
  }
  return 'is not a host name; write it like api.example.com or *.example.com';
}

function withoutEndDot(name: string): string {
  return name.endsWith('.') ? name.slice(0, -1) : name;
}

/** Converts with the URL parser, which treats such a name as browsers do (UTS 46). */
function toALabels(text: string): string | undefined {
  if (!PLAIN_OR_FOREIGN.test(text)) return undefined;
  try {
    return new URL(`http://${text}`).hostname;
  } catch {
    return undefined;
  }
}
