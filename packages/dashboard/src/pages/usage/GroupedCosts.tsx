import { useSignal } from '@preact/signals';
import { costCents } from '../../../../contract/src/billing/cost.ts';
import { formatCents, formatDuration, formatNumber, formatImage } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Card } from '../../ui/Page.tsx';
import { costsByLabel, groupCosts, labelNames, type CostLine, type GroupCost } from './statement-costs.ts';

const IMAGE = 'image';
const LABEL = 'label:';
const MAX_SHOWN = 20;

/** The costs of a month by a label that the reader chooses, or by image. */
export function GroupedCosts({ lines }: { lines: readonly CostLine[] }) {
  const labels = labelNames(lines);
  const chosen = useSignal(labels[0] === undefined ? IMAGE : LABEL + labels[0]);
  const label = chosen.value.startsWith(LABEL) ? chosen.value.slice(LABEL.length) : undefined;
  const groups =
    label === undefined ? groupCosts(lines, ({ image }) => formatImage(image)) : costsByLabel(lines, label);
  return (
    <Card
      title={label === undefined ? 'By image' : `By label ${label}`}
      actions={
        <select
          aria-label="Group the costs by"
          value={chosen.value}
          onChange={(event) => (chosen.value = event.currentTarget.value)}
        >
          {labels.map((name) => (
            <option key={name} value={LABEL + name}>
              Label {name}
            </option>
          ))}
          <option value={IMAGE}>Image</option>
        </select>
      }
    >
      <Groups groups={groups} label={label} />
    </Card>
  );
}

function Groups({ groups, label }: { groups: readonly GroupCost[]; label: string | undefined }) {
  const most = Number(groups[0]?.units ?? 0n);
  const rest = groups.slice(MAX_SHOWN);
  return (
    <>
      <ul class="shares" aria-label="Cost by group">
        {groups.slice(0, MAX_SHOWN).map((group) => (
          <ShareBar
            key={String(group.value)}
            name={nameOf(group, label)}
            isPlain={typeof group.value !== 'string'}
            note={`${countOf(group.sandboxes)} · ${formatDuration(group.billedMs)}`}
            value={formatCents(costCents(group.units))}
            share={most === 0 ? 0 : Number(group.units) / most}
          />
        ))}
      </ul>
      {rest.length > 0 && (
        <p class="hint">
          {formatNumber(rest.length)} more with{' '}
          {formatCents(costCents(rest.reduce((sum, { units }) => sum + units, 0n)))} together.
        </p>
      )}
    </>
  );
}

function countOf(sandboxes: number): string {
  return sandboxes === 1 ? '1 sandbox' : `${formatNumber(sandboxes)} sandboxes`;
}

function nameOf({ value }: GroupCost, label: string | undefined): string {
  if (value === null) return `without ${label ?? ''}`;
  if (value === undefined) return 'not known any more';
  return value === '' ? '(empty)' : value;
}

/** A part of a sum, with a bar for its size relative to the largest. */
export function ShareBar({
  name,
  value,
  note,
  share,
  isPlain = false,
}: {
  name: string;
  value: string;
  note?: string;
  share: number;
  isPlain?: boolean;
}) {
  return (
    <li class="share">
      <span class={isPlain ? 'share-name soft' : 'share-name'}>
        <GuestText text={name} />
      </span>
      {note !== undefined && <span class="hint">{note}</span>}
      <span class="share-value">{value}</span>
      <span class="meter-track" aria-hidden="true">
        <span style={{ width: `${Math.max(share * 100, share > 0 ? 0.5 : 0)}%` }} />
      </span>
    </li>
  );
}
