import { Component, type ComponentChildren } from 'preact';
import { Button } from './Button.tsx';
import { Failure } from './states.tsx';

interface BoundaryProps {
  /** Another value clears the fault, for example the address of the page. */
  scope: string;
  children: ComponentChildren;
}

interface BoundaryState {
  fault: unknown;
  scope: string;
}

/** Shows a fault of the pages inside, instead of nothing. After an upgrade of the service, parts of an older page are gone. */
export class Boundary extends Component<BoundaryProps, BoundaryState> {
  override state: BoundaryState = { fault: undefined, scope: this.props.scope };

  static override getDerivedStateFromError(fault: unknown): Partial<BoundaryState> {
    return { fault };
  }

  static override getDerivedStateFromProps(
    { scope }: BoundaryProps,
    state: BoundaryState,
  ): BoundaryState | null {
    return scope === state.scope ? null : { fault: undefined, scope };
  }

  override render() {
    const { fault } = this.state;
    if (fault === undefined) return this.props.children;
    console.error(fault);
    return (
      <div class="page">
        <Failure
          error={new Error('This part of the page could not be shown. The service may have been upgraded.')}
        />
        <div>
          <Button kind="primary" icon="refresh" onClick={() => location.reload()}>
            Reload the page
          </Button>
        </div>
      </div>
    );
  }
}
