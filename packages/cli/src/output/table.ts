import { toVisible } from './visible-text.ts';

/** A column of a table: its head, and the text of an item. */
export interface Column<Item> {
  head: string;
  text: (item: Item) => string;
  /** Colour of the cell on a terminal. */
  colour?: (item: Item) => Colour | undefined;
}

export type Colour = 'green' | 'yellow' | 'red' | 'dim';

/** Name and value of a field. A field without a value is not shown. */
export type Field = readonly [name: string, value: string | number | null | undefined];

const CODES = { green: '\u001b[32m', yellow: '\u001b[33m', red: '\u001b[31m', dim: '\u001b[2m' };
const RESET = '\u001b[0m';
const GAP = '  ';

/** Returns a table with one line for the heads and one for each item. */
export function formatTable<Item>(
  items: readonly Item[],
  columns: readonly Column<Item>[],
  { colour }: { colour: boolean },
): string {
  const rows = items.map((item) => columns.map((column) => toVisible(column.text(item))));
  const widths = columns.map(({ head }, index) =>
    Math.max(head.length, ...rows.map((cells) => width(cells[index] ?? ''))),
  );
  const paint = (text: string, chosen: Colour | undefined): string =>
    colour && chosen !== undefined ? `${CODES[chosen]}${text}${RESET}` : text;
  const line = (cells: readonly string[], choose: (index: number) => Colour | undefined): string =>
    cells
      .map((cell, index) => {
        const isLast = index === cells.length - 1;
        const gap = isLast ? '' : ' '.repeat((widths[index] ?? 0) - width(cell)) + GAP;
        return paint(cell, choose(index)) + gap;
      })
      .join('')
      .trimEnd();
  const lines = [
    line(
      columns.map(({ head }) => head),
      () => 'dim',
    ),
    ...rows.map((cells, row) =>
      line(cells, (index) => {
        const item = items[row];
        return item === undefined ? undefined : columns[index]?.colour?.(item);
      }),
    ),
  ];
  return `${lines.join('\n')}\n`;
}

/** Returns a line for each field that has a value. */
export function formatFields(fields: readonly Field[]): string {
  const shown = fields.filter(([, value]) => value !== null && value !== undefined && value !== '');
  const widest = Math.max(0, ...shown.map(([name]) => name.length));
  return shown
    .map(([name, value]) => `${`${name}:`.padEnd(widest + 2)}${toVisible(String(value))}\n`)
    .join('');
}

/** Returns the width of a text on a terminal, about: some characters take two columns. */
function width(text: string): number {
  return Array.from(text).length;
}
