"""Post hooks of a step, compiled: an average of the weights, a scheduler, and a pre hook."""

import torch

torch.manual_seed(0)
for kind in (torch.optim.SGD, torch.optim.AdamW):
    torch._dynamo.reset()
    net = torch.nn.Linear(16, 1)
    average = [p.detach().clone() for p in net.parameters()]
    optimizer = kind(net.parameters(), lr=0.1)

    def follow(optimizer, args, kwargs):
        with torch.no_grad():
            for mean, parameter in zip(average, net.parameters()):
                mean.lerp_(parameter, 0.1)

    def scale(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(0.5)

    optimizer.register_step_pre_hook(scale)
    optimizer.register_step_post_hook(follow)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.randn(8, 16)).square().mean().backward()
        step()
    print([mean.sum().item() for mean in average])
