import { Badge } from '../../ui/Badge.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { formatMoment, formatNumber } from '../../ui/format.ts';
import { Facts } from '../../ui/Page.tsx';
import { showHidden, showHiddenInLines } from '../../ui/visible-text.ts';
import { markOf, type Line, type LogEntry } from './filter-entries.ts';
import { toText } from './sentence.ts';
import { NameText, SentenceText } from './SentenceText.tsx';

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
          ['Time, UTC', <span class="mono">{showHidden(ts)}</span>],
          ...(actor === undefined ? [] : ([['By', <NameText sentence={actor.name} />]] as const)),
          ...facts.map(([name, value]) => [name, <span class="mono">{showHidden(value)}</span>] as const),
        ]}
      />
      <FieldList data={data} />
      <div class="one-column">
        <Facts facts={[['Hash', <span class="mono">{showHidden(hmac)}</span>]]} />
      </div>
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
          <dt>{showHidden(name)}</dt>
          <dd>
            <pre tabIndex={0}>{writeField(value)}</pre>
          </dd>
        </div>
      ))}
    </dl>
  );
}

function writeField(value: unknown): string {
  if (typeof value === 'object' && value !== null)
    return showHiddenInLines(JSON.stringify(value, undefined, 2));
  return showHiddenInLines(toText(value));
}
