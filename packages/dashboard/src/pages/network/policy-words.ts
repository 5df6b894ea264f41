import type { Rules } from './policy-draft.ts';

const CATCH_ALLS = new Set(['0.0.0.0/0', '*']);

/** Describes a policy in one sentence. */
export function describePolicy({ allow, deny }: Rules): string {
  const opensAll = allow.some((rule) => CATCH_ALLS.has(rule));
  const deniesAll = deny.some((rule) => CATCH_ALLS.has(rule) || rule === '::/0');
  const denied = deny.filter((rule) => !CATCH_ALLS.has(rule) && rule !== '::/0').length;
  if (opensAll || (allow.length === 0 && !deniesAll))
    return denied === 0 ? 'Allows everything.' : `Allows everything except what ${match(denied)}.`;
  if (allow.length === 0) return 'Allows nothing.';
  const rest = denied === 0 ? '' : `, except what ${match(denied)}`;
  return `Allows only what ${match(allow.length)}${rest}.`;
}

function match(rules: number): string {
  return rules === 1 ? 'one rule matches' : `${rules} rules match`;
}
