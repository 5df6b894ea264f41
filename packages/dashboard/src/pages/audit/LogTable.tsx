import { useLocation } from 'preact-iso';
import { Badge } from '../../ui/Badge.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatMoment } from '../../ui/format.ts';
import { Empty } from '../../ui/states.tsx';
import { EntryDialog } from './EntryDialog.tsx';
import { markOf, type Line, type LogEntry } from './filter-entries.ts';
import { formatLogTime } from './log-time.ts';
import { NameText, SentenceText } from './SentenceText.tsx';

interface LogTableProps<Entry extends LogEntry> {
  /** Newest first. */
  lines: readonly Line<Entry>[];
  /** All lines of the log: the one that the address names may be filtered out. */
  all: readonly Line<Entry>[];
  /** Path of the page that shows the log. */
  path: string;
  /** Facts of the entry besides its data, for its dialog. */
  facts?: (entry: Entry) => readonly (readonly [string, string])[];
}

/** The entries of a log. Each one opens as `?entry=<number>`. */
export function LogTable<Entry extends LogEntry>({ lines, all, path, facts }: LogTableProps<Entry>) {
  const { query, route } = useLocation();
  const opened = all.find(({ entry }) => String(entry.seq) === query['entry']);
  return (
    <>
      {lines.length === 0 ? (
        <NoEntry isAny={all.length > 0} />
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

function NoEntry({ isAny }: { isAny: boolean }) {
  if (!isAny) return <Empty icon="log" title="The log has no entry yet" />;
  return (
    <Empty icon="search" title="No entry matches">
      Change the search or the filters.
    </Empty>
  );
}

function listColumns<Entry extends LogEntry>(hasActor: boolean): readonly Column<Line<Entry>>[] {
  const now = new Date();
  const columns: Column<Line<Entry>>[] = [
    {
      id: 'time',
      label: 'Time',
      width: '11rem',
      cell: ({ entry }) => (
        <time dateTime={entry.ts} title={formatMoment(entry.ts)}>
          {formatLogTime(entry.ts, now)}
        </time>
      ),
    },
    { id: 'text', label: 'What happened', width: '1fr', cell: (line) => <WhatHappened line={line} /> },
  ];
  const actor: Column<Line<Entry>> = {
    id: 'actor',
    label: 'By',
    width: '12rem',
    isMinor: true,
    cell: (line) => <NameText sentence={line.actor?.name ?? []} />,
  };
  return hasActor ? [...columns, actor] : columns;
}

function WhatHappened<Entry extends LogEntry>({ line: { entry, sentence, actor } }: { line: Line<Entry> }) {
  const mark = markOf(entry);
  return (
    <span class="entry">
      <SentenceText sentence={sentence} />
      <span class="entry-note">
        {mark === 'calm' ? <span>{entry.event}</span> : <Badge tone={mark}>{entry.event}</Badge>}
        {actor !== undefined && (
          <span class="entry-actor">
            <NameText sentence={actor.name} />
          </span>
        )}
        <span>#{entry.seq}</span>
      </span>
    </span>
  );
}
