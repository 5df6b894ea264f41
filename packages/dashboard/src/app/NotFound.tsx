import { ButtonLink } from '../ui/Button.tsx';
import { Page } from '../ui/Page.tsx';
import { Empty } from '../ui/states.tsx';

export function NotFound() {
  return (
    <Page title="Not found">
      <Empty
        icon="search"
        title="There is no such page"
        action={
          <ButtonLink href="/sandboxes" kind="primary">
            To the sandboxes
          </ButtonLink>
        }
      >
        The address may be misspelled, or what it named may be gone.
      </Empty>
    </Page>
  );
}
