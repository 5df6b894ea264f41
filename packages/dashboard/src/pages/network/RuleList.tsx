import '../../styles/network.css';
import { formatNumber } from '../../ui/format.ts';
import type { Rules } from './policy-draft.ts';

const MAX_SHOWN = 40;

/** The two lists of a policy. */
export function RuleLists({ allow, deny }: Rules) {
  return (
    <div class="rule-lists">
      <RuleList label="Allow" rules={allow} tone="good" />
      <RuleList label="Deny" rules={deny} tone="bad" />
    </div>
  );
}

function RuleList({ label, rules, tone }: { label: string; rules: readonly string[]; tone: string }) {
  if (rules.length === 0) return null;
  const rest = rules.length - MAX_SHOWN;
  return (
    <div>
      <h3 class="soft">{label}</h3>
      <ul class="rules">
        {rules.slice(0, MAX_SHOWN).map((rule, index) => (
          <li key={index} class={`rule ${tone}`}>
            {rule}
          </li>
        ))}
        {rest > 0 && <li class="soft">and {formatNumber(rest)} more</li>}
      </ul>
    </div>
  );
}
