import { useLocation } from 'preact-iso';
import { Badge } from '../../ui/Badge.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatMoment } from '../../ui/format.ts';
import { Empty } from '../../ui/states.tsx';
import { EntryDialog } from './EntryDialog.tsx';
import { markOf, type Line, type LogEntry } from './filter-entries.ts';
import { SentenceText } from './SentenceText.tsx';

interface LogTableProps<Entry extends LogEntry> {
  /** Newest first. */
  lines: readonly Line<Entry>[];
  /** All lines of the log: the one that the address names may be filtered out. */
  all: readonly Line<Entry>[];
  /** Path of the page that shows the log. */
  path: string;
  /** What the entry has besides its data, for its dialog. */
  facts?: (entry: Entry) => readonly (readonly [string, string])[];
}

/** The entries of a log. Each one opens as `?entry=<number>`. */
export function LogTable<Entry extends LogEntry>({ lines, all, path, facts }: LogTableProps<Entry>) {
  const { query, route } = useLocation();
  const opened = all.find(({ entry }) => String(entry.seq) === query['entry']);
  return (
    <>
      {lines.length === 0 ? (
        <Empty icon="search" title="No entry matches">
          Change the search or the filters.
        </Empty>
      ) : (
        <DataTable
          label="Entries"
          columns={listColumns<Entry>(all[0]?.actor !== undefined)}
          rows={lines}
          rowId={({ entry }) => String(entry.seq)}
          href={({ entry }) => `${path}?entry=${entry.seq}`}
        />
      )}
      {opened !== undefined && (
        <EntryDialog line={opened} facts={facts?.(opened.entry) ?? []} onClose={() => route(path, true)} />
      )}
    </>
  );
}

function listColumns<Entry extends LogEntry>(hasActor: boolean): readonly Column<Line<Entry>>[] {
  const columns: Column<Line<Entry>>[] = [
    { id: 'time', label: 'Time', width: '12rem', cell: ({ entry }) => formatMoment(entry.ts) },
    {
      id: 'event',
      label: 'Event',
      width: '12rem',
      isMinor: true,
      cell: ({ entry }) => <Badge tone={markOf(entry)}>{entry.event}</Badge>,
    },
    {
      id: 'text',
      label: 'What happened',
      width: '1fr',
      cell: ({ sentence }) => <SentenceText sentence={sentence} />,
    },
    {
      id: 'seq',
      label: 'No.',
      width: '4.5rem',
      align: 'end',
      isMinor: true,
      cell: ({ entry }) => <span class="soft">{entry.seq}</span>,
    },
  ];
  const actor: Column<Line<Entry>> = {
    id: 'actor',
    label: 'By',
    width: '11rem',
    cell: (line) => <SentenceText sentence={line.actor?.name ?? []} />,
  };
  return hasActor ? columns.toSpliced(3, 0, actor) : columns;
}
