import type { Signal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { OrganizationAuditEntry } from '../../../../sdk/src/index.ts';
import { formatNumber } from '../../ui/format.ts';
import { TextField, SelectField } from '../../ui/Field.tsx';
import type { Line, Range } from './filter-entries.ts';
import { countEntries, nameEvent } from './organization-sentences.ts';
import { toPlainText } from './sentence.ts';

interface FilterFields {
  search: Signal<string>;
  event: Signal<string>;
  actor: Signal<string>;
  range: Signal<Range>;
  from: Signal<string>;
  to: Signal<string>;
}

const RANGE_LABELS: readonly (readonly [Range, string])[] = [
  ['all', 'Any time'],
  ['hour', 'Last hour'],
  ['day', 'Last 24 hours'],
  ['week', 'Last 7 days'],
  ['month', 'Last 30 days'],
  ['own', 'From … to …'],
];

/** Chooses entries by words, event, actor and time. The choices are those that the log has. */
export function OrganizationFilters({
  lines,
  shown,
  fields: { search, event, actor, range, from, to },
}: {
  lines: readonly Line<OrganizationAuditEntry>[];
  shown: number;
  fields: FilterFields;
}) {
  const events = useMemo(() => listEvents(lines), [lines]);
  const actors = useMemo(() => listActors(lines), [lines]);
  return (
    <div class="audit-filters">
      <TextField
        label="Search"
        value={search.value}
        onValue={(value) => (search.value = value)}
        attributes={{ type: 'search', placeholder: 'Words, ids, addresses' }}
      />
      <SelectField
        label="Event"
        value={event.value}
        options={events}
        onValue={(value) => (event.value = value)}
      />
      <SelectField
        label="By"
        value={actor.value}
        options={actors}
        onValue={(value) => (actor.value = value)}
      />
      <SelectField
        label="Time"
        value={range.value}
        options={RANGE_LABELS}
        onValue={(value) => (range.value = value as Range)}
      />
      {range.value === 'own' && (
        <div class="audit-range">
          <TextField
            label="From"
            value={from.value}
            onValue={(value) => (from.value = value)}
            attributes={{ type: 'datetime-local' }}
          />
          <TextField
            label="To"
            value={to.value}
            onValue={(value) => (to.value = value)}
            attributes={{ type: 'datetime-local' }}
          />
        </div>
      )}
      <span class="soft count" role="status">
        {shown === lines.length
          ? countEntries(shown)
          : `${formatNumber(shown)} of ${countEntries(lines.length)}`}
      </span>
    </div>
  );
}

type Options = readonly (readonly [value: string, label: string])[];

/** Subjects, such as `api_key`, with their events. */
function listEvents(lines: readonly Line<OrganizationAuditEntry>[]): Options {
  const names = new Set<string>();
  for (const { entry } of lines) names.add(entry.event.split('.')[0] ?? '').add(entry.event);
  return [['', 'All events'], ...Array.from(names, (name) => [name, nameEvent(name)] as const).sort(byLabel)];
}

function listActors(lines: readonly Line<OrganizationAuditEntry>[]): Options {
  const names = new Map<string, string>();
  for (const { actor } of lines) if (actor !== undefined) names.set(actor.id, toPlainText(actor.name));
  return [['', 'All'], ...[...names].sort(byLabel)];
}

function byLabel(a: readonly [string, string], b: readonly [string, string]): number {
  return a[1].localeCompare(b[1]);
}
