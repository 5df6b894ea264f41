import { Badge } from '../../ui/Badge.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { formatMoment, formatNumber } from '../../ui/format.ts';
import { Facts } from '../../ui/Page.tsx';
import { markOf, type Line, type LogEntry } from './filter-entries.ts';
import { revealUnseen, toText } from './sentence.ts';
import { SentenceText } from './SentenceText.tsx';

/** All that an entry says, as text. */
export function EntryDialog<Entry extends LogEntry>({
  line: { entry, sentence, actor },
  facts,
  onClose,
}: {
  line: Line<Entry>;
  facts: readonly (readonly [string, string])[];
  onClose: () => void;
}) {
  const { seq, ts, event, data, hmac } = entry;
  return (
    <Dialog title={`Entry ${formatNumber(seq)}`} size="large" onClose={onClose}>
      <p class="entry-sentence">
        <SentenceText sentence={sentence} />
      </p>
      <Facts
        facts={[
          ['Event', <Badge tone={markOf(entry)}>{event}</Badge>],
          ['Time', formatMoment(ts)],
          ['Time, UTC', <span class="mono">{revealUnseen(ts)}</span>],
          ...(actor === undefined ? [] : ([['By', <SentenceText sentence={actor.name} />]] as const)),
          ...facts.map(([name, value]) => [name, <span class="mono">{revealUnseen(value)}</span>] as const),
        ]}
      />
      <FieldList data={data} />
      <Facts facts={[['Hash', <span class="mono">{revealUnseen(hmac)}</span>]]} />
      <div class="dialog-foot">
        <CopyButton text={JSON.stringify(entry, undefined, 2)} label="Copy the entry">
          Copy as JSON
        </CopyButton>
      </div>
    </Dialog>
  );
}

function FieldList({ data }: { data: Record<string, unknown> }) {
  const fields = Object.entries(data);
  if (fields.length === 0) return <p class="soft">The entry has no further fields.</p>;
  return (
    <dl class="entry-fields">
      {fields.map(([name, value]) => (
        <div key={name}>
          <dt>{revealUnseen(name)}</dt>
          <dd>
            <pre tabIndex={0}>{writeField(value)}</pre>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Lines of a text stay lines; everything else that cannot be seen is shown. */
function writeField(value: unknown): string {
  if (typeof value === 'string') return value.split('\n').map(revealUnseen).join('\n');
  if (typeof value === 'object' && value !== null)
    return JSON.stringify(value, undefined, 2).split('\n').map(revealUnseen).join('\n');
  return toText(value);
}
