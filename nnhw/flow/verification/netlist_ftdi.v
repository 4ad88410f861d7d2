// A netlist behind its port for an FTDI chip, entered at byte streams: what the driver lets the chip do. The chip shifts
// without pause, zeros where there is nothing to send; the flash is selected and let go in front of each transfer.
module top(
    input clk, input rst,
    input [7:0] i__payload, input i__valid, output i__ready,
    output reg [7:0] o__payload, output reg o__valid, input o__ready
);
    localparam CLOCK_HZ = 48000000, RATE = 30000000;
    // Edges of sck fall on edges of clk: on average they are as far apart as the chip's, and at most as frequent as these.
    localparam STEP = RATE < CLOCK_HZ ? RATE : CLOCK_HZ;
    localparam SELECT = 0, RELEASE = 1, FIRST = 2, LAST = 17;
    reg cs = 1, sck = 0, copi = 0;
    wire cipo;
    netlist netlist(.clk(clk), .ftdi_cs(cs), .ftdi_sck(sck), .ftdi_copi(copi), .ftdi_cipo(cipo));

    // Flags that change hand bytes over between the edges of clk and those of sck.
    reg [7:0] waiting = 0, sending = 0, received = 0;
    reg offered = 0, taken = 0, arrived = 0, seen = 0;
    reg [31:0] phase = 0;
    reg [4:0] step = SELECT;
    reg [7:0] bytes = 0;
    wire [7:0] following = offered != taken ? waiting : 8'h00;
    always @(posedge clk or negedge clk)
        if (phase < CLOCK_HZ - STEP) phase <= phase + STEP;
        else begin
            phase <= phase - (CLOCK_HZ - STEP);
            step <= step != LAST ? step + 1 : bytes == 255 ? SELECT : FIRST;
            if (!step[0]) sck <= 0;
            if (step == SELECT) cs <= 0;
            else if (step == RELEASE) cs <= 1;
            else if (step == FIRST) begin
                {copi, sending} <= {following, 1'b0};
                taken <= offered;
            end else if (!step[0]) {copi, sending} <= {sending, 1'b0};
            else begin
                sck <= 1;
                received <= {received[6:0], cipo};
            end
            if (step == LAST) begin
                arrived <= ~arrived;
                bytes <= bytes + 1;
            end
        end

    // Of the zeros between two frames one is kept.
    reg ended = 1;
    assign i__ready = offered == taken;
    initial begin
        o__valid = 0;
        o__payload = 0;
    end
    always @(posedge clk) begin
        if (o__ready) o__valid <= 0;
        if (i__valid && i__ready) begin
            waiting <= i__payload;
            offered <= ~offered;
        end
        if (arrived != seen) begin
            seen <= arrived;
            ended <= received == 0;
            if (received != 0 || !ended) begin
                o__payload <= received;
                o__valid <= 1;
            end
        end
    end
endmodule
