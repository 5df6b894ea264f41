/** A family as a drawn tree. Only the rows in view are in the document. Arrow keys move, as in any tree. */
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { StateBadge } from '../../../ui/Badge.tsx';
import { Icon } from '../../../ui/Icon.tsx';
import { formatAge, formatBytes, formatCents, formatMoment } from '../../../ui/format.ts';
import { costOf, type FamilyCosts } from './costs.ts';
import type { FamilyNode } from './family.ts';
import { drawLines, stepOf, type Row } from './layout.ts';
import { nameOf, type LiveRecords } from './node-text.ts';

interface TreeView {
  rows: readonly Row[];
  live: LiveRecords;
  costs: FamilyCosts | undefined;
  now: number;
  currentId: string;
  selectedId: string | undefined;
}

interface FamilyTreeProps extends TreeView {
  /** The arrow keys. */
  onSelect: (id: string) => void;
  /** A click. */
  onPick: (id: string) => void;
  /** Enter: opens what is selected. */
  onEnter: (id: string) => void;
  onToggle: (id: string) => void;
}

const ROW_PX = 46;
const EXTRA_ROWS = 8;

export function FamilyTree(props: FamilyTreeProps) {
  const { rows, selectedId, onSelect } = props;
  const box = useRef<HTMLDivElement>(null);
  const { first, last, widthPx } = useView(box, rows.length);
  const selected = rows.findIndex(({ node }) => node.id === selectedId);
  const stepPx = stepOf(rows, widthPx);
  const isFirst = useRef(true);
  useEffect(() => {
    scrollTo(box.current, selected);
    // The page itself moves only for a choice of the reader.
    if (!isFirst.current)
      requestAnimationFrame(() =>
        document.getElementById(rowId(selectedId ?? ''))?.scrollIntoView({ block: 'nearest' }),
      );
    isFirst.current = false;
  }, [selectedId]);
  return (
    <div
      ref={box}
      class="family"
      role="tree"
      aria-label="Family of the sandbox"
      aria-activedescendant={selected === -1 ? undefined : rowId(selectedId ?? '')}
      tabIndex={0}
      onKeyDown={(event) => handleKey(event, props)}
      onFocus={({ currentTarget }) => {
        // A click selects by itself.
        if (selected === -1 && rows[0] !== undefined && currentTarget.matches(':focus-visible'))
          onSelect(rows[0].node.id);
      }}
    >
      <div
        class="family-rows"
        role="none"
        style={{ paddingTop: `${first * ROW_PX}px`, paddingBottom: `${(rows.length - last) * ROW_PX}px` }}
      >
        {rows.slice(first, last).map((row) => (
          <TreeRow key={row.node.id} row={row} stepPx={stepPx} {...props} />
        ))}
      </div>
    </div>
  );
}

function TreeRow({ row, stepPx, ...props }: { row: Row; stepPx: number } & FamilyTreeProps) {
  const { node, depth, isOpen, position, siblings } = row;
  const { selectedId, currentId, onPick, onToggle, live } = props;
  const linesPx = (depth + 1) * stepPx;
  const isEnded = node.kind === 'sandbox' && node.record.endedAt !== null;
  return (
    <div
      id={rowId(node.id)}
      class={`family-row ${node.kind}${isEnded ? ' ended' : ''}${node.id === currentId ? ' current' : ''}`}
      role="treeitem"
      aria-level={depth + 1}
      aria-posinset={position}
      aria-setsize={siblings}
      aria-expanded={isOpen}
      aria-selected={node.id === selectedId}
      onClick={() => onPick(node.id)}
    >
      <svg class="family-lines" width={linesPx} height={ROW_PX} aria-hidden="true">
        <path d={drawLines(row, stepPx, ROW_PX)} />
        {node.kind === 'snapshot' ? (
          <rect
            class="family-dot"
            x={linesPx - stepPx / 2 - 4.5}
            y={ROW_PX / 2 - 4.5}
            width={9}
            height={9}
            rx={2}
          />
        ) : (
          <circle
            class={`family-dot ${node.record.status}`}
            cx={linesPx - stepPx / 2}
            cy={ROW_PX / 2}
            r={5.5}
          />
        )}
      </svg>
      <span
        class={`family-toggle${isOpen === undefined ? ' leaf' : isOpen ? ' open' : ''}`}
        aria-hidden="true"
        onClick={(event) => {
          event.stopPropagation();
          if (isOpen !== undefined) onToggle(node.id);
        }}
      >
        {isOpen !== undefined && <Icon name="chevronRight" size={16} />}
      </span>
      <span class={`family-name${nameOf(node, live) === node.id ? ' mono' : ''}`}>{nameOf(node, live)}</span>
      {node.id === currentId && <span class="family-here">this one</span>}
      <RowFacts node={node} {...props} />
    </div>
  );
}

function RowFacts({ node, live, costs, now }: { node: FamilyNode } & TreeView) {
  return (
    <>
      <span class="family-state">
        {node.kind === 'snapshot' ? (
          <span class="family-size">{formatBytes(node.record.sizeBytes)}</span>
        ) : (
          <StateBadge {...(live.get(node.id) ?? node.record)} />
        )}
      </span>
      <span class="family-cost">{formatCost(costOf(node, { live, costs, now }))}</span>
      <time class="family-age" dateTime={node.createdAt} title={formatMoment(node.createdAt)}>
        {formatAge(node.createdAt, now)}
      </time>
    </>
  );
}

function formatCost(cents: number | undefined): string {
  return cents === undefined ? '' : formatCents(cents);
}

function rowId(id: string): string {
  return `family-${id}`;
}

function handleKey(
  event: KeyboardEvent,
  { rows, selectedId, onSelect, onEnter, onToggle }: FamilyTreeProps,
): void {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const index = rows.findIndex(({ node }) => node.id === selectedId);
  const row = rows[index];
  const select = (at: number): void => {
    const target = rows[Math.max(0, Math.min(rows.length - 1, at))];
    if (target !== undefined) onSelect(target.node.id);
  };
  const moves: Readonly<Record<string, () => void>> = {
    ArrowDown: () => select(index + 1),
    ArrowUp: () => select(index - 1),
    Home: () => select(0),
    End: () => select(rows.length - 1),
    PageDown: () => select(index + 10),
    PageUp: () => select(index - 10),
    ArrowRight: () => {
      if (row?.isOpen === false) onToggle(row.node.id);
      else if (row?.isOpen === true) select(index + 1);
    },
    ArrowLeft: () => {
      if (row?.isOpen === true) onToggle(row.node.id);
      else if (row?.node.parent !== undefined) onSelect(row.node.parent.id);
    },
    Enter: () => row !== undefined && onEnter(row.node.id),
    ' ': () => row !== undefined && onEnter(row.node.id),
  };
  const move = moves[event.key];
  if (move === undefined) return;
  event.preventDefault();
  move();
}

function scrollTo(box: HTMLDivElement | null, index: number): void {
  if (box === null || index === -1) return;
  const top = index * ROW_PX;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW_PX > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW_PX - box.clientHeight;
}

/** Returns the range of rows in view, and the width of the tree. */
function useView(box: { current: HTMLDivElement | null }, count: number) {
  const view = useSignal({ first: 0, last: 40, widthPx: 600 });
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const update = (): void => {
      const first = Math.max(0, Math.floor(element.scrollTop / ROW_PX) - EXTRA_ROWS);
      const last = first + Math.ceil(element.clientHeight / ROW_PX) + 2 * EXTRA_ROWS;
      const widthPx = element.clientWidth;
      const now = view.value;
      if (first !== now.first || last !== now.last || widthPx !== now.widthPx)
        view.value = { first, last, widthPx };
    };
    update();
    const observer = new ResizeObserver(update);
    observer.observe(element);
    element.addEventListener('scroll', update, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', update);
    };
  }, [count]);
  const { first, last, widthPx } = view.value;
  return { first: Math.min(first, count), last: Math.min(last, count), widthPx };
}
