/**
 * A table that stays fast with tens of thousands of rows: only those in view are in the document. Rows have one height.
 * On a narrow screen each row is a small card, which has its own height.
 */
import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

export interface Column<Row> {
  id: string;
  label: string;
  cell: (row: Row) => ComponentChildren;
  /** Share of the width, for example `2fr` or `8rem`. Default: `1fr`. */
  width?: string;
  align?: 'end';
  /** Left out on narrow screens. */
  isMinor?: boolean;
  /** Has the actions of the row: only readers of any kind get its label, and narrow screens have it at the top right. */
  isAction?: boolean;
}

interface DataTableProps<Row> {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowId: (row: Row) => string;
  /** The page that a row leads to. */
  href?: (row: Row) => string;
}

const ROW_PX = 44;
const CARD_PX = 104;
const EXTRA_ROWS = 12;
/** Shorter tables are in the document as a whole. */
const SHORT = 60;
const NARROW = '(max-width: 700px)';

export function DataTable<Row>({ label, columns, rows, rowId, href }: DataTableProps<Row>) {
  const body = useRef<HTMLDivElement>(null);
  const { first, last, rowPx } = useWindow(body, rows.length);
  const template = columns.map(({ width = '1fr' }) => `minmax(0, ${width})`).join(' ');
  const shown = rows.slice(first, last);
  return (
    <div
      class="table"
      role="table"
      aria-label={label}
      aria-rowcount={rows.length + 1}
      style={{ '--columns': template }}
    >
      <div class="table-head" role="row">
        {columns.map(({ id, label: text, align, isMinor, isAction }) => (
          <div key={id} role="columnheader" class={classOf(align, isMinor, isAction)}>
            {isAction === true ? <span class="unseen">{text}</span> : text}
          </div>
        ))}
      </div>
      <div
        ref={body}
        class="table-body"
        role="rowgroup"
        style={{ paddingTop: `${first * rowPx}px`, paddingBottom: `${(rows.length - last) * rowPx}px` }}
      >
        {shown.map((row, index) => (
          <TableRow
            key={rowId(row)}
            row={row}
            columns={columns}
            href={href?.(row)}
            position={first + index + 2}
          />
        ))}
      </div>
    </div>
  );
}

function TableRow<Row>({
  row,
  columns,
  href,
  position,
}: {
  row: Row;
  columns: readonly Column<Row>[];
  href: string | undefined;
  position: number;
}) {
  return (
    <div class={`table-row${href === undefined ? '' : ' linked'}`} role="row" aria-rowindex={position}>
      {columns.map(({ id, label, cell, align, isMinor, isAction }, index) => (
        <div key={id} role="cell" class={classOf(align, isMinor, isAction)} data-label={label}>
          {index === 0 && href !== undefined ? (
            <a class="row-link" href={href}>
              {cell(row)}
            </a>
          ) : (
            cell(row)
          )}
        </div>
      ))}
    </div>
  );
}

function classOf(align: 'end' | undefined, isMinor = false, isAction = false): string {
  return `${align === 'end' ? 'end' : ''}${isMinor ? ' minor' : ''}${isAction ? ' action' : ''}`.trim();
}

/** Returns the range of rows that are in view, or near. */
function useWindow(body: { current: HTMLDivElement | null }, count: number) {
  const range = useSignal({ first: 0, last: SHORT, rowPx: ROW_PX });
  useEffect(() => {
    const update = (): void => {
      const element = body.current;
      if (element === null) return;
      const rowPx = matchMedia(NARROW).matches ? CARD_PX : ROW_PX;
      const above = Math.max(0, -element.getBoundingClientRect().top);
      const first = count <= SHORT ? 0 : Math.max(0, Math.floor(above / rowPx) - EXTRA_ROWS);
      const visible = Math.ceil(window.innerHeight / rowPx) + 2 * EXTRA_ROWS;
      const last = count <= SHORT ? count : Math.min(count, first + visible);
      const now = range.value;
      if (first !== now.first || last !== now.last || rowPx !== now.rowPx)
        range.value = { first, last, rowPx };
    };
    update();
    addEventListener('scroll', update, { passive: true });
    addEventListener('resize', update);
    return () => {
      removeEventListener('scroll', update);
      removeEventListener('resize', update);
    };
  }, [count]);
  const { first, last, rowPx } = range.value;
  // The range of the last drawing may be that of fewer rows.
  if (count <= SHORT) return { first: 0, last: count, rowPx };
  return { first: Math.min(first, count), last: Math.min(last, count), rowPx };
}
