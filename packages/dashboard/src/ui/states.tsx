/** How a part of the page looks while it has nothing to show: loading, empty, failed. */
import type { ComponentChildren } from 'preact';
import { explain } from './explain.ts';
import type { Resource } from '../service/resource.ts';
import { Button } from './Button.tsx';
import { Icon, type IconName } from './Icon.tsx';

export function Skeleton({ rows = 4 }: { rows?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, index) => (
        <div key={index} class="skeleton-row" />
      ))}
    </div>
  );
}

interface EmptyProps {
  icon: IconName;
  title: string;
  children?: ComponentChildren;
  action?: ComponentChildren;
}

export function Empty({ icon, title, children, action }: EmptyProps) {
  return (
    <div class="empty">
      <span class="empty-icon">
        <Icon name={icon} size={28} />
      </span>
      <h3>{title}</h3>
      {children !== undefined && <p>{children}</p>}
      {action}
    </div>
  );
}

export function Failure({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  return (
    <div class="failure" role="alert">
      <Icon name="alert" />
      <p>{explain(error)}</p>
      {onRetry !== undefined && (
        <Button icon="refresh" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** Shows a resource, or how its reading stands. A value that was read before stays while a later reading fails. */
export function Loaded<Value>({
  resource,
  rows,
  children,
}: {
  resource: Resource<Value>;
  rows?: number;
  children: (value: Value) => ComponentChildren;
}) {
  const { value, error, reload } = resource;
  if (value === undefined)
    return error === undefined ? <Skeleton rows={rows ?? 4} /> : <Failure error={error} onRetry={reload} />;
  return (
    <>
      {error !== undefined && <Failure error={error} onRetry={reload} />}
      {children(value)}
    </>
  );
}
