/**
 * The rows of a drawn tree. Each row draws its own part of the lines: a bend from its parent, and the lines of ancestors
 * that have further children below.
 */
import { hasEnded, type Family, type FamilyNode } from './family.ts';

export interface Row {
  node: FamilyNode;
  /** 0 for a root. */
  depth: number;
  /** Position among the shown children of its parent, from 1. */
  position: number;
  /** Number of these. */
  siblings: number;
  /** Undefined without children. */
  isOpen: boolean | undefined;
  /** For each depth from 1 to its own less one: whether a line passes through. */
  rails: readonly boolean[];
}

interface View {
  /** Ids of the nodes whose children are hidden. */
  closed: ReadonlySet<string>;
  /** Leaves out sandboxes that have ended, unless something that exists descends from them. */
  isLiveOnly: boolean;
  /** Never left out. */
  currentId: string;
}

interface Place {
  node: FamilyNode;
  position: number;
  siblings: number;
  rails: readonly boolean[];
  depth: number;
}

/** Returns the rows of a family from the top down. */
export function layOut(family: Family, { closed, isLiveOnly, currentId }: View): Row[] {
  const shown = isLiveOnly ? findShown(family, currentId) : undefined;
  const filter = (nodes: readonly FamilyNode[]): readonly FamilyNode[] =>
    shown === undefined ? nodes : nodes.filter((node) => shown.has(node));
  const rows: Row[] = [];
  const waiting = placesOf(filter(family.roots), undefined).toReversed();
  for (let place = waiting.pop(); place !== undefined; place = waiting.pop()) {
    const children = filter(place.node.children);
    const isOpen = children.length === 0 ? undefined : !closed.has(place.node.id);
    rows.push({ ...place, isOpen });
    if (isOpen === true) waiting.push(...placesOf(children, place).toReversed());
  }
  return rows;
}

function placesOf(nodes: readonly FamilyNode[], parent: Place | undefined): Place[] {
  const siblings = nodes.length;
  const depth = parent === undefined ? 0 : parent.depth + 1;
  // A line passes beside the children of a node that has siblings below it.
  const rails =
    parent === undefined || parent.depth === 0 ? [] : [...parent.rails, parent.position < parent.siblings];
  return nodes.map((node, index) => ({ node, position: index + 1, siblings, depth, rails }));
}

function findShown(family: Family, currentId: string): Set<FamilyNode> {
  const shown = new Set<FamilyNode>();
  for (const node of family.nodes.values()) {
    const isShown = node.kind === 'snapshot' || !hasEnded(node) || node.id === currentId;
    if (!isShown) continue;
    for (let next: FamilyNode | undefined = node; next !== undefined && !shown.has(next); next = next.parent)
      shown.add(next);
  }
  return shown;
}

const MAX_STEP_PX = 24;
const MIN_STEP_PX = 5;

/** Returns how far a generation is indented: less in deep families, so that names keep their place. */
export function stepOf(rows: readonly Row[], widthPx: number): number {
  const deepest = rows.reduce((most, { depth }) => Math.max(most, depth), 1);
  return Math.max(MIN_STEP_PX, Math.min(MAX_STEP_PX, Math.floor(widthPx / 2 / deepest)));
}

/** Returns the lines of a row as a path, in pixels from its upper left corner. */
export function drawLines(
  { depth, position, siblings, rails, isOpen }: Row,
  stepPx: number,
  heightPx: number,
): string {
  const middle = heightPx / 2;
  const xOf = (level: number): number => level * stepPx + stepPx / 2;
  const lines = rails.flatMap((passes, index) => (passes ? [`M${xOf(index)} 0V${heightPx}`] : []));
  if (depth > 0) {
    const x = xOf(depth - 1);
    const bend = Math.min(10, stepPx / 2, middle);
    lines.push(`M${x} 0V${middle - bend}Q${x} ${middle} ${x + bend} ${middle}H${xOf(depth)}`);
    if (position < siblings) lines.push(`M${x} ${middle - bend}V${heightPx}`);
  }
  if (isOpen === true) lines.push(`M${xOf(depth)} ${middle}V${heightPx}`);
  return lines.join('');
}
