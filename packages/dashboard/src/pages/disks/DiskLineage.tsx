import type { DiskNode } from './disk-lineage.ts';
import { DiskStatus } from './DiskStatus.tsx';

/** The disks from which a disk descends, and those that were forked from it. */
export function DiskLineage({ tree, current }: { tree: DiskNode; current: string }) {
  if (tree.forks.length === 0)
    return <p class="soft">This disk is not a fork, and none was forked from it.</p>;
  return (
    <ul class="lineage">
      <LineageNode node={tree} current={current} />
    </ul>
  );
}

function LineageNode({ node: { name, disk, forks }, current }: { node: DiskNode; current: string }) {
  const isCurrent = name === current;
  return (
    <li>
      <span class={`lineage-node${isCurrent ? ' current' : ''}`}>
        {disk === undefined ? (
          <span class="soft">{name} (not among the disks you can see)</span>
        ) : (
          <>
            <a href={`/disks/${encodeURIComponent(name)}`} aria-current={isCurrent ? 'page' : undefined}>
              {name}
            </a>
            <DiskStatus disk={disk} />
          </>
        )}
      </span>
      {forks.length > 0 && (
        <ul>
          {forks.map((fork) => (
            <LineageNode key={fork.name} node={fork} current={current} />
          ))}
        </ul>
      )}
    </li>
  );
}
